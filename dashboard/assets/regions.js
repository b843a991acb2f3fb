// Regions are parts of a page that the server sends alone. Each is an element with an id, and replaces the element of the page with the same id. Attributes:
// data-part marks a link, and data-post a form, whose answer is a region; data-src is the address of a region that has its own; data-of identifies the content, so
// that a newer version is told from other content; data-reread names the elements whose regions are read again.
"use strict";
const retryAfter = 3000, pauses = { plot: 5000, aliases: 1000, list: 2000 }; // milliseconds; pauses are the shortest times between two reads of a region
const isWide = matchMedia("(min-width: 64rem)");
const hereAddress = () => location.pathname + location.search;
const shownRegions = () => $$("[data-region='']").filter(el => !$("[data-region='']", el)).map(el => el.dataset.src ? `${el.id}=${el.dataset.src}` : el.id).join(" ");

// ask reads regions. The result is null if the same read may succeed later, and undefined after another error. isRetry keeps the same error from being announced
// again.
async function ask(url, names = shownRegions(), init = {}, isRetry = false) {
	let response, content;
	try {
		response = await fetch(url, { ...init, headers: { "X-Regions": names } });
		content = parse(await response.text());
	} catch {
		if (!isRetry) announce("The relay cannot be reached.", true);
		return null;
	}
	if (response.status === 401) return location.replace(hereAddress());
	if (response.redirected) content.movedTo = response.url;
	if (response.ok || $("main, [data-region]", content)) return content; // a page with an error status may be a form with its mistakes
	const isPassing = response.status >= 500 || response.status === 429;
	if (!isPassing || !isRetry) announce(content.textContent.trim() || `This did not work (status ${response.status}).`, true);
	return isPassing ? null : undefined;
}

// put shows one element that the server sent.
function put(fresh) {
	const old = document.getElementById(fresh.id);
	if (!old) document.getElementById(fresh.dataset.into)?.append(fresh);
	else if (fresh.localName === "main" || old.dataset.of !== fresh.dataset.of) old.replaceWith(fresh);
	else morph(old, fresh);
	decorate(document.getElementById(fresh.id) ?? fresh);
}
function swap(content) {
	const focused = document.activeElement;
	for (const fresh of [...content?.children ?? []]) {
		if (fresh.localName === "title") pageTitle = fresh.textContent;
		else if (fresh.id === "say") fresh.textContent && announce(fresh.textContent.trim());
		else put(fresh);
		for (const id of fresh.dataset.reread?.split(" ") ?? []) reread(id);
	}
	if (!focused.isConnected && focused !== document.body) (document.getElementById(focused.id) || $("#replay"))?.focus({ preventScroll: true });
	if (content) showChanges();
}

// reread reads the region again that contains the element with an id, one read at a time; a change during a read causes one more. A failed read that may succeed
// later is repeated, because no other message may report the change.
const reads = new Map(); // region id -> {runs, shown, again, failed} of its last read
const addressOf = region => region?.dataset.src || hereAddress();
async function reread(id) {
	const region = document.getElementById(id)?.closest("[data-region]");
	if (!region) return;
	const name = region.id, before = reads.get(name);
	if (before?.runs) return void (before.again = true);
	const read = { runs: true, shown: false, failed: before?.failed }, began = performance.now(), at = addressOf(region);
	reads.set(name, read);
	const content = await ask(at, name, {}, read.failed);
	read.failed = content === null;
	read.shown = true;
	if (addressOf(document.getElementById(name)) === at) { // otherwise the user has opened something else
		if (content === undefined && at === shownAhead) return location.replace(at); // the page at this address shows the error
		if (content && at === shownAhead) shownAhead = ""; // the shown copy is up to date
		swap(content);
	}
	schedule();
	setTimeout(() => { read.runs = false; if (read.again || read.failed) reread(name); }, Math.max(read.failed ? retryAfter : pauses[name] ?? 0, 2 * (performance.now() - began)));
}
const isBeingRead = name => reads.get(name)?.shown === false;

// The next event in the direction of the last key is read ahead, so that it can be shown at once. One copy is kept, for one use. When the live connection reports a
// change of that event, the copy is read again or forgotten; without the connection nothing is read ahead or kept. A copy older than aheadIsNew is read again after
// it is shown, because the connection does not report every change. If that read is refused, the event was deleted or belongs to another account.
const restBeforeAhead = 150, aheadIsNew = 5000; // milliseconds
let ahead = { href: "" }, aheadTimer = 0, nextLink = "#older-event", shownAhead = ""; // shownAhead is the address of a shown copy that has to be read again
const isLive = () => source?.readyState === EventSource.OPEN;
const isAhead = href => ahead.href === href && ahead.names === shownRegions() && isLive();
const forgetAhead = used => { clearTimeout(aheadTimer); if (ahead !== used) ahead.stop?.abort(); ahead = { href: "" }; };
function readAhead() {
	clearTimeout(aheadTimer);
	aheadTimer = setTimeout(() => {
		const href = $(`${nextLink}:not([hidden])`)?.href, names = shownRegions();
		if (!href || document.hidden || !isLive() || isAhead(href)) return;
		const mine = ahead = { href, names, at: Date.now(), stop: new AbortController() }, keep = text => { decorate(mine.content = parse(text)); return mine.content; };
		mine.answer = fetch(href, { headers: { "X-Regions": names }, signal: mine.stop.signal }).then(async answer => answer.ok && !answer.redirected ? keep(await answer.text()) : null).catch(() => null); // openPage then asks for the page again
	}, restBeforeAhead);
}

// openPage shows the page of an address. The server leaves out the regions that the page already shows.
let opening = "", isOutdated = false; // isOutdated: the event that is being opened has changed in the meantime
async function openPage(url, push = true) {
	[opening, isOutdated] = [url.href, false];
	const known = isAhead(url.href) ? ahead : {};
	forgetAhead(known); // the read of the used copy goes on
	const content = await known.answer ?? await ask(url), another = url.pathname !== location.pathname;
	if (opening !== url.href) return;
	opening = "";
	if (!content) return;
	if (push && url.href !== location.href) history.pushState(null, "", url);
	if (known.content) setFolds(content); // the user may have changed folds since the copy was read
	const anotherList = content.getElementById("list");
	swap(content);
	if (anotherList) $("#search").value = $("#search").defaultValue;
	if (another && !isWide.matches) scrollTo(0, 0);
	if (url.hash) document.getElementById(url.hash.slice(1))?.scrollIntoView({ block: "nearest" });
	shownAhead = known.content && Math.abs(Date.now() - known.at) > aheadIsNew ? hereAddress() : ""; // the absolute age, because the clock may have been set back
	if (isOutdated || shownAhead) reread("event");
	readAhead();
}
addEventListener("popstate", () => { if ($("#list")) openPage(new URL(location.href), false); });

// sending has the forms that were sent, and whether they were answered. A form stays in it until the page shows a new rendering of that form.
const sending = new Map();
const formKey = (url, fields) => url.replace(location.origin, "").replace("?", "") + (fields ?? "");
const keyOf = button => formKey(button.getAttribute("formaction") || button.form.action, new URLSearchParams(new FormData(button.form)));
async function send(url, body) {
	const key = formKey(url, body), before = latestAttempt();
	if (sending.has(key)) return;
	sending.set(key, false);
	showSending();
	forgetAhead();
	const content = await ask(url, undefined, { method: "POST", body });
	sending.delete(key);
	if (content) {
		const isPage = $("main", content);
		sending.set(key, true);
		if (latestAttempt() !== before) $("#say", content)?.replaceChildren(); // the attempt has already ended, and its end was announced
		if (content.movedTo) history.replaceState(null, "", content.movedTo);
		swap(content);
		if (isPage) (wrong => { (wrong ?? $("#main h1"))?.scrollIntoView({ block: "center" }); wrong?.focus(); })($("#main [aria-invalid]"));
	}
	showSending();
}
function showSending() {
	const shown = new Set();
	for (const button of sending.size || $("[aria-disabled]") ? $$("#replay, #rows button[formaction]") : []) {
		const key = keyOf(button), runs = sending.has(key);
		shown.add(key);
		if (runs) button.setAttribute("aria-disabled", "true");
		else button.removeAttribute("aria-disabled");
		setText(button, runs ? "Replaying…" : "Replay");
	}
	for (const [key, answered] of sending) if (answered && !shown.has(key)) sending.delete(key);
}

// Clicks on links, sent forms, and the completion of typed words.
document.addEventListener("click", e => {
	const link = e.target.closest("a[data-part]");
	if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
	e.preventDefault();
	link.closest("[popover]")?.hidePopover();
	const row = link.closest("#rows > li"), byKey = e.detail === 0 && row;
	if (row) markRow(row.id);
	openPage(new URL(link.href)).then(() => { if (byKey) $("#event h1")?.focus({ preventScroll: true }); }); // Escape moves the focus back to the row
});
document.addEventListener("submit", e => {
	const form = e.target, fields = new URLSearchParams(new FormData(form, e.submitter));
	if (form.matches("#list [role=search]")) {
		const url = new URL(form.action), words = wordsInUTC(fields.getAll("find").join(" ").trim());
		if (words) url.searchParams.set("find", words);
		openPage(url);
	} else if (form.matches("[data-post]")) send(e.submitter?.getAttribute("formaction") || form.action, fields);
	else return;
	e.preventDefault();
});
document.addEventListener("keydown", e => { // in an empty search box, Backspace removes the last token
	if (e.key === "Backspace" && e.target.id === "search" && !e.target.value) $$(".token a").at(-1)?.click();
});
let completeTimer = 0;
document.addEventListener("input", e => {
	if (!e.target.dataset.complete) return;
	clearTimeout(completeTimer);
	completeTimer = setTimeout(async () => swap(await ask(e.target.dataset.complete + encodeURIComponent(e.target.value), "completions")), 120);
});

// isTyped reports whether the user has changed the field whose former value is in this hidden input, was.NAME.
const isTyped = ({ name, form }, field = name?.startsWith?.("was.") && form.elements[name.slice(4)]) => field && field.value !== field.defaultValue;
// morph makes the element old equal to fresh and keeps the elements that are in both, with their focus, scroll position, selection and folds. Children are matched
// by id, or else in their order.
function morph(old, fresh) {
	if (old.nodeName !== fresh.nodeName || old.id !== fresh.id) return old.replaceWith(fresh);
	if (old.nodeType !== Node.ELEMENT_NODE) {
		if (old.data !== fresh.data) old.data = fresh.data;
		return;
	}
	if (old.jsonSource !== undefined && old.jsonSource === fresh.textContent) return; // old is a JSON view of the same text
	if (old.jsonSource !== undefined || old.localName === "pre" && old.className !== fresh.className) return old.replaceWith(fresh);
	const kept = name => name === "open" || name === "data-new" && old.className === "attempt" || name === "title" && old.localName === "time" || old.parentNode?.id === "rows" && ["class", "data-day", "data-new", "hidden"].includes(name) ||
		name === "aria-current" && old.parentNode?.id === "sidebar" || // updates of the sidebar do not know which page they are for
		name === "value" && isTyped(old) && !("told" in fresh.dataset);
	for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !kept(name)) old.removeAttribute(name);
	for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && !kept(name)) old.setAttribute(name, value);
	if (old.localName === "time" && old.dateTime === fresh.dateTime) return; // the script has set the text of a time
	morphChildren(old, fresh);
}
function morphChildren(old, fresh) {
	const freshIDs = new Set([...fresh.children].map(child => child.id).filter(Boolean));
	const isFree = node => !freshIDs.has(node.id) && !node.dataset?.keep;
	let at = old.firstChild;
	for (const child of [...fresh.childNodes]) {
		let match = child.id ? [...old.children].find(el => el.id === child.id) : null;
		if (!child.id) for (let next = at; next && !match; next = next.nextSibling) if (isFree(next) && !next.id && next.nodeName === child.nodeName) match = next;
		if (!match) {
			old.insertBefore(child, at);
			continue;
		}
		for (let next; at && at !== match && isFree(at); at = next) { next = at.nextSibling; at.remove(); }
		if (at === match) at = at.nextSibling;
		else old.insertBefore(match, at);
		morph(match, child);
	}
	for (let next; at; at = next) {
		next = at.nextSibling;
		if (!at.dataset?.keep) at.remove();
	}
}
