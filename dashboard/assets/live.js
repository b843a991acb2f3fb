// Parts of pages, live updates, replays in place and keys.
"use strict";
(() => {
const maxRows = 300, rowsPerFrame = 12;
const restBeforeOpen = 80, undoSeconds = 3, overviewEvery = 5000, touchEvery = 1000, retryAfter = 3000; // ms but for undoSeconds
const isWide = matchMedia("(min-width: 64rem)");
const main = $("#main");
const pendingRows = new Map(); // event id -> {name, html}: rows not shown yet
let lastID = "", pendingPanel = "", listIsStale = false, listIsBeingRead = false, frame = 0, connection = "";

// Parts of pages. The result is null where the same read may succeed later; isRetry keeps the same
// fault from being announced again.
async function fetchPart(url, init = {}, isRetry = false) {
	let response, content;
	try {
		response = await fetch(url, { ...init, headers: { "X-Partial": "1" } });
		content = parse(await response.text());
	} catch {
		if (!isRetry) announce("The relay cannot be reached.", true);
		return null;
	}
	if (response.status === 401) return location.replace(location.pathname + location.search);
	if (response.ok || $("#list, #detail", content)) return content; // it says what is wrong with a form
	const isPassing = response.status >= 500 || response.status === 429;
	if (!isPassing || !isRetry) announce(content.textContent.trim() || `This did not work (status ${response.status}).`, true);
	return isPassing ? null : undefined;
}
const currentID = () => $("#event")?.dataset.eventId || "";
const latestAttempt = () => $$("#event [data-attempt]").sort((a, b) => a.dataset.attempt - b.dataset.attempt).slice(-1).map(a =>
	`Attempt ${a.dataset.attempt}: ` + [...new Set([a.dataset.state, $(".pill", a)?.textContent, $(".place", a)?.textContent])].join(" ").trim()).join();

// swap puts the named parts of content into the page.
function swap(content, ids) {
	if (!content) return false;
	const focused = document.activeElement, attempt = latestAttempt(), id = currentID();
	for (const name of ids) {
		const fresh = content.getElementById(name), old = document.getElementById(name);
		if (!fresh || !old) continue;
		const sameEvent = $("#event", fresh)?.dataset.eventId === $("#event", old)?.dataset.eventId;
		if (name === "detail" && !sameEvent) old.replaceWith(fresh);
		else morph(old, fresh);
		decorate(document.getElementById(name));
	}
	main.classList.toggle("overview", !$("#event"));
	arrangeRows();
	showConnection();
	showNotices();
	if (!focused.isConnected && focused !== document.body) (document.getElementById(focused.id) || $("#replay"))?.focus({ preventScroll: true });
	const now = latestAttempt();
	if (id && id === currentID() && now !== attempt && !now.includes(": delivering")) announce(now); // its start was announced by the answer to the form
	return true;
}

// rereader reads a part again and shows it, one read at a time; a change meanwhile causes one more.
// A read that may succeed later is repeated: what it was to show may never be told again.
function rereader(address, show, pause = 0) {
	let running = false, again = false, failed = false;
	return async function reread() {
		if (running) return void (again = true);
		running = true;
		const began = performance.now(), at = address(), content = at ? await fetchPart(at, {}, failed) : undefined;
		failed = content === null;
		show(content, at);
		const took = performance.now() - began;
		setTimeout(() => { running = false; if (again || failed) { again = false; reread(); } }, Math.max(failed ? retryAfter : pause, 2 * took));
	};
}
const eventAddress = () => currentID() && `/events/${currentID()}${location.search}`;
const rereadEvent = rereader(eventAddress, (content, at) => at === eventAddress() && swap(content, ["detail"])); // else another attempt or event was opened meanwhile
const rereadOverview = rereader(() => $("#alias") && $("#stream").dataset.self, content => swap(content, $("#alias") ? ["detail"] : []), overviewEvery);
const rereadAliases = rereader(() => "/", content => swap(content, ["aliases"]), touchEvery);
const rereadList = rereader(() => { listIsBeingRead = true; return $("#stream").dataset.self; }, (content, at) => {
	listIsBeingRead = false;
	if (at === $("#stream").dataset.self) swap(content, $("#event") ? ["list"] : ["list", "detail"]);
	schedule();
}, 2000);

// open shows the page of an address: an event beside the list, or the list itself.
let opening = "", changed = ""; // changed is the id of an event that has changed since it was opened
async function open(url, push = true) {
	[opening, changed] = [url.href, ""];
	const isEvent = url.pathname.startsWith("/events/"), id = isEvent ? url.pathname.split("/")[2] : "";
	markRow(id);
	const content = await fetchPart(url);
	if (!content && !isEvent) return url.hash && url.href === location.href ? undefined : location.assign(url); // the page says what is wrong; the same address with a fragment would come back here
	if (!content || opening !== url.href) return;
	if (isEvent) await followFilter($("[rel=up]", content));
	const another = id !== currentID(), listChanged = !isEvent && content.getElementById("stream")?.dataset.self !== $("#stream")?.dataset.self;
	if (!swap(content, listChanged ? ["list", "detail"] : ["detail"])) return;
	if (push) history.pushState(null, "", url);
	if (listChanged) showFilter(), connect("");
	if (another && !isWide.matches) scrollTo(0, 0);
	if (url.hash) document.getElementById(url.hash.slice(1))?.scrollIntoView({ block: "nearest" });
	if (id && changed === id) rereadEvent();
}
// followFilter shows the list that an event was opened in: on the way back in the history
// it may be another one than the list on the page.
const filterKey = href => { const url = new URL(href, location.href); for (const name of ["cursor", "tick"]) url.searchParams.delete(name); return url.pathname + url.search; };
async function followFilter(up) {
	if (filterKey(up.href) === filterKey($("#stream").dataset.self)) return;
	swap(await fetchPart(up.href), ["list"]);
	showFilter();
	connect("");
}
const showFilter = () => { const box = $("#search"); if (box) box.value = box.getAttribute("value") ?? ""; };
// Forms under way, and whether they were answered. A replay is until its buttons know of its attempt.
const sending = new Map();
const formKey = (url, fields) => url.replace(location.origin, "").replace("?", "") + (fields ?? "");
const keyOf = button => formKey(button.getAttribute("formaction") || button.form.action, new URLSearchParams(new FormData(button.form)));
async function send(url, body) {
	const key = formKey(url, body), before = latestAttempt();
	if (sending.has(key)) return;
	sending.set(key, false);
	showSending();
	const content = await fetchPart(url, { method: "POST", body });
	if (content && key.includes("seen=")) sending.set(key, true);
	else sending.delete(key);
	if (!content) return showSending();
	if (content.getElementById("detail")) return swap(content, ["detail"]);
	if (latestAttempt() === before) announce(content.textContent.trim()); // the attempt may have ended already, which was announced
	if (url.endsWith("/searches")) rereadList();
	else if ($("#event")) rereadEvent();
	else showSending();
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
// replayNow presses the button of an event; twice in a row is once.
let replayedAt = -1e4;
function replayNow(id) {
	const button = id === currentID() ? $("#replay") : $(`#${id} button[formaction]`);
	if (performance.now() - replayedAt < 500 || button?.disabled) return;
	replayedAt = performance.now();
	button ? button.form.requestSubmit(button) : send(`/events/${id}/replay`);
}

// The list.
function markRow(id) {
	const row = id && document.getElementById(id);
	for (const a of $$("#rows a[aria-current]")) if (a.parentElement !== row) a.removeAttribute("aria-current");
	if (row) $("a", row).setAttribute("aria-current", "true");
}
// arrangeRows adds what depends on the neighbours of a row: the selection, days, retries of
// one delivery, and the links to the events above and below.
function arrangeRows() {
	const rows = [...$("#rows")?.children ?? []], seen = new Map(), id = currentID();
	let day = "";
	for (const row of rows) {
		row.day ??= dayOf(new Date($("time", row).dateTime)); // kept: of 300 rows few are new
		const text = row.day === day ? "" : row.day;
		if (row.dataset.day !== text) row.dataset.day = text;
		day = row.day;
		const key = row.dataset.delivery, first = key && seen.get(key);
		if (row.classList.contains("retry") !== Boolean(first)) row.classList.toggle("retry");
		const hidden = Boolean(first) && !first.row.classList.contains("unfolded") && row.id !== id;
		setHidden(row, hidden);
		if (first) first.count++;
		else if (key) seen.set(key, { row, count: 0 });
	}
	for (const { row, count } of seen.values()) showRetries(row, count);
	markRow(id);
	if ($("#event")) {
		const at = rows.findIndex(row => row.id === id);
		for (const [name, row] of [["newer", rows[at - 1]], ["older-event", at < 0 ? null : rows[at + 1]]]) {
			const link = document.getElementById(name), href = row && $("a", row).getAttribute("href");
			setHidden(link, !href);
			if (href && link.getAttribute("href") !== href) { link.href = href; link.dataset.part = ""; }
		}
	}
	showSending();
	const title = $("#detail")?.dataset.title;
	if (title) pageTitle = `${title} · Relay`;
	showTitle();
}
function dayOf(at) {
	const day = at.toDateString();
	if (day === new Date().toDateString()) return "";
	return day === new Date(Date.now() - 864e5).toDateString() ? "Yesterday" : at.toLocaleDateString("en", { weekday: "short", day: "numeric", month: "short" });
}
function showRetries(row, count) {
	let button = $(".retries", row);
	if (!count) return button?.remove();
	if (!button) {
		button = make("button", { type: "button", className: "retries", onclick: () => { row.classList.toggle("unfolded"); arrangeRows(); } });
		button.dataset.keep = "1";
		row.append(button);
	}
	setText(button, `${row.classList.contains("unfolded") ? "hide" : "+"} ${count} earlier ${count === 1 ? "delivery" : "deliveries"}`);
}
const visibleRows = () => $$("#rows > li:not([hidden])");

// The title counts what came while nobody looked.
let pageTitle = document.title, unseen = 0;
function showTitle() {
	document.title = unseen ? `(${unseen}) ${pageTitle}` : pageTitle;
}

// Browser notifications, if the person asked for them.
let notifiedAt = 0;
const wantsNotices = () => "Notification" in window && Notification.permission === "granted" && stored("notify", false);
function notify(html) {
	if (!wantsNotices() || Date.now() - notifiedAt < 3000) return;
	notifiedAt = Date.now();
	const row = parse(html).firstElementChild, notice = new Notification($(".what", row).textContent, { body: `${$(".pill", row).textContent} · ${$("#stream").dataset.self.split("/")[2].split("?")[0]}`, tag: "relay", icon: "/assets/icon.svg" });
	notice.onclick = () => { window.focus(); open(new URL($("a", row).getAttribute("href"), location.href)); notice.close(); };
}
async function toggleNotices() {
	const want = !wantsNotices();
	if (want && await Notification.requestPermission() !== "granted") return announce("The browser does not allow notifications for this site.", true);
	store("notify", want);
	showNotices();
	announce(want ? "New events are notified while this page is hidden." : "Notifications are off.");
}
function showNotices() {
	const button = $("#notify");
	if (!button) return;
	button.hidden = !("Notification" in window);
	button.setAttribute("aria-pressed", wantsNotices());
}

// Live updates.
const list = () => $("#list");
const isHeld = () => (isWide.matches ? list().scrollTop : scrollY) > 120 || !$("#follow")?.checked;
function schedule() { frame ||= requestAnimationFrame(flush); }
function flush() {
	frame = 0;
	if (listIsBeingRead) return; // it may be older than the rows that wait, and would remove them
	const hold = $("#rows") && isHeld(); // read once: it forces a layout
	if (listIsStale && !hold) { listIsStale = false; pendingRows.clear(); return void rereadList(); }
	if (pendingPanel && $("#alias")) { morph($("#alias"), parse(pendingPanel).firstElementChild); decorate($("#alias")); }
	pendingPanel = "";
	let shown = 0;
	for (const [id, message] of pendingRows) {
		const old = document.getElementById(id);
		if (!old && message.name === "row" && hold) continue;
		pendingRows.delete(id);
		if (old) { morph(old, parse(message.html).firstElementChild); decorate(old); }
		else if (message.name === "row") insertRow(id, message.html);
		if (++shown === rowsPerFrame) break;
	}
	if (shown) arrangeRows();
	showNewCount();
	if (shown === rowsPerFrame) schedule();
}
function insertRow(id, html) {
	const rows = $("#rows"), older = $("#older"), row = parse(html).firstElementChild;
	let below = rows.firstElementChild;
	while (below && below.id > id) below = below.nextElementSibling; // ids are in order of arrival
	if (!below && rows.firstElementChild && !older.parentNode.hidden) return; // it belongs on an older page
	rows.insertBefore(row, below);
	decorate(row);
	$("#empty")?.remove();
	if (rows.children.length <= maxRows) return;
	const url = new URL(older.href);
	rows.lastElementChild.remove();
	url.searchParams.set("cursor", rows.lastElementChild.id);
	older.href = url;
	older.parentNode.hidden = false;
}
function showNewCount() {
	const count = [...pendingRows.values()].filter(m => m.name === "row").length, button = $("#new");
	if (!button) return;
	if (count > maxRows) { pendingRows.clear(); listIsStale = true; } // the list is read again when the person asks for it
	setHidden(button, count === 0 && !listIsStale);
	setText(button, listIsStale ? "New events" : `${count} new`);
}
const isNew = (name, id) => name === "row" && !document.getElementById(id) && !pendingRows.has(id);
function receiveRow(name, id, html) {
	if (id === currentID()) rereadEvent();
	else if (opening.includes(id)) changed = id;
	if ($("#alias")) rereadOverview();
	if (document.hidden && isNew(name, id)) {
		unseen++;
		showTitle();
		notify(html);
	}
	pendingRows.set(id, { name, html });
	schedule();
}
function receiveSide(html) {
	const fresh = parse(html).firstElementChild, old = document.getElementById(fresh.id), event = $("#event");
	if (old) morph(old, fresh);
	else $("#side")?.append(fresh);
	if (event && event.dataset.alias === fresh.dataset.alias && (event.dataset.state === "queued" || $(".crumbs .state", event).classList[1] !== fresh.dataset.state)) rereadEvent();
}
const receivers = {
	row: e => receiveRow("row", /id="(\w+)"/.exec(e.data)[1], e.data),
	update: e => receiveRow("update", /id="(\w+)"/.exec(e.data)[1], e.data),
	alias: e => { pendingPanel = e.data; schedule(); },
	side: e => receiveSide(e.data),
	sidebar: e => morph($("#sidebar"), parse(e.data).firstElementChild),
	touch: () => { if ($("#aliases")) rereadAliases(); },
	resync: () => { listIsStale = true; if ($("#event")) rereadEvent(); schedule(); },
};
// refusalOf asks for the status that an EventSource does not tell.
const loggedOut = "logged out";
async function refusalOf(url) {
	try {
		const { status } = await fetch(url, { method: "HEAD", signal: AbortSignal.timeout(retryAfter) });
		if (status === 429) return "too many live pages at once";
		if (status === 401) return loggedOut;
		if (status === 403 || status === 404) return "no access any more";
		return status < 400 ? "" : `refused with status ${status}`;
	} catch { // no connection
		return "";
	}
}
function showConnection(text = connection) {
	connection = text;
	const link = $("#link");
	if (!link) return text === loggedOut && announce("You are logged out; load the page again.", true);
	if (text !== loggedOut) setText(link, text);
	else if (!$("a", link)) link.replaceChildren(`${text}, `, make("a", { href: location.pathname + location.search, textContent: "log in" }));
	link.dataset.is = text;
}
let source;
// connect asks for what came after an item: "" = all since the list of the page was read.
function connect(after = lastID) {
	source?.close();
	lastID = after;
	if (document.hidden && !isWatching && !wantsNotices() || !$("#sidebar")) return;
	const url = new URL($("[data-live]")?.dataset.live || "/live", location.href);
	if (lastID) url.searchParams.set("after", lastID);
	source = new EventSource(url);
	source.onopen = () => showConnection("live");
	source.onerror = async e => {
		if (e.target.readyState !== EventSource.CLOSED) return showConnection("reconnecting…"); // by the browser
		const reason = await refusalOf(url);
		if (source !== e.target) return;
		showConnection(reason && reason !== loggedOut ? `${reason}, trying again…` : reason || "reconnecting…");
		if (reason !== loggedOut) setTimeout(() => { if (source === e.target) connect(); }, retryAfter);
	};
	for (const [name, receive] of Object.entries(receivers)) source.addEventListener(name, e => { lastID = e.lastEventId || lastID; receive(e); });
}
// Of the pages nobody looks at, the oldest one stays connected, for the count in its title:
// with HTTP/1.1 a browser has only six connections to a host.
let isWatching = false;
navigator.locks?.request("relay-watch", () => {
	isWatching = true;
	if (document.hidden) connect();
	return new Promise(() => {}); // until the page is closed
});
document.addEventListener("visibilitychange", () => {
	unseen = 0;
	showTitle();
	if (source?.readyState !== EventSource.OPEN || !isWatching && !wantsNotices()) connect();
});
addEventListener("scroll", () => { if ((pendingRows.size || listIsStale) && !isHeld()) schedule(); }, { passive: true, capture: true });
addEventListener("popstate", () => { if ($("#list")) open(new URL(location.href), false); });

// Clicks and forms.
document.addEventListener("click", e => {
	const link = e.target.closest("a[data-part], #new, #show-keys, #notify");
	if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
	if (link.id === "new") {
		$("#follow").checked = true;
		(isWide.matches ? list() : window).scrollTo(0, 0);
		return schedule();
	}
	if (link.id === "notify") return toggleNotices();
	e.preventDefault();
	if (link.id === "show-keys") return keys["?"]();
	const byKey = e.detail === 0 && link.closest("#rows");
	open(new URL(link.href)).then(() => { if (byKey) $("#event h1")?.focus({ preventScroll: true }); }); // Esc leads back
});
document.addEventListener("change", e => {
	if (e.target.id === "follow") schedule();
	if (e.target.form?.id === "many") setText($("#many button"), `Replay selected (${$$("#rows input:checked").length})…`);
});
document.addEventListener("submit", e => {
	const form = e.target, fields = new URLSearchParams(new FormData(form, e.submitter));
	if (form.matches("[role=search]")) {
		const url = new URL(form.action), words = wordsInUTC($("#search").value.trim());
		if (words) url.searchParams.set("find", words);
		open(url);
	} else if (form.matches("#act, [data-post]")) send(e.submitter?.getAttribute("formaction") || form.action, fields);
	else return;
	e.preventDefault();
});

// Searching: completion by the server.
let completeTimer = 0;
document.addEventListener("input", e => {
	if (e.target.id !== "search") return;
	clearTimeout(completeTimer);
	completeTimer = setTimeout(async () => {
		const content = await fetchPart(`/aliases/${aliasName()}/complete?text=${encodeURIComponent(e.target.value)}`);
		if (content) morph($("#completions"), content.firstElementChild);
	}, 120);
});
const aliasName = () => $("#stream").dataset.self.split(/[/?]/)[2];

// A replay by key in a list can be taken back for some seconds.
let undoTimer = 0;
function cancelUndo() {
	if (!undoTimer) return false;
	clearInterval(undoTimer);
	undoTimer = 0;
	announce("Not replayed.");
	return true;
}
function replaySoon(id) {
	cancelUndo();
	let left = undoSeconds;
	const name = $(".what", document.getElementById(id))?.textContent ?? "the event", tell = () => announce(`Replaying ${name} in ${left} s. Esc cancels.`);
	tell();
	undoTimer = setInterval(() => {
		if (--left > 0) return tell();
		clearInterval(undoTimer);
		undoTimer = 0;
		replayNow(id);
	}, 1000);
}

// Keys.
const focusedRow = () => document.activeElement.closest("#rows > li");
let openTimer = 0;
function move(by) {
	const rows = visibleRows(), at = rows.findIndex(row => row === focusedRow()), now = at >= 0 ? at : rows.findIndex(row => row.id === currentID());
	const row = rows[now < 0 ? 0 : Math.min(Math.max(now + by, 0), rows.length - 1)];
	if (!row) return;
	$("a", row).focus();
	if (!isWide.matches) return;
	markRow(row.id);
	clearTimeout(openTimer);
	openTimer = setTimeout(() => { if (row.id !== currentID()) open(new URL($("a", row).href)); }, restBeforeOpen);
}
// compareWithNeighbour takes the event above, or the one below the first.
function compareWithNeighbour(id) {
	const rows = visibleRows(), at = rows.findIndex(row => row.id === id), other = rows[at - 1] ?? rows[at + 1];
	if (id && at >= 0 && other) location.assign(`/diff?${new URLSearchParams({ left: other.id < id ? other.id : id, right: other.id < id ? id : other.id, part: "request" })}`);
	else if (id) location.assign(`/diff?left=${id}`);
}
const keys = {
	j: () => move(1), k: () => move(-1),
	"[": () => $("#newer:not([hidden])")?.click(), "]": () => $("#older-event:not([hidden])")?.click(),
	r: id => id && (focusedRow() ? replaySoon(id) : replayNow(id)),
	p: () => $("#pin")?.click(),
	x: id => id && send(`/events/${id}/cancel`),
	c: id => id && copyFrom(`/api/v1/events/${id}/export?format=curl`),
	f: () => $("#follow")?.click(),
	d: compareWithNeighbour,
	" ": () => $("input", focusedRow() ?? main)?.click(),
	s: id => $("#share") ? $("#share").focus() : id && location.assign(`/events/${id}#shares`),
	"/": () => $("#search")?.select(),
	"?": () => $("#keys")?.showModal(),
	Escape: () => { if (!cancelUndo()) (visibleRows().find(row => row.id === currentID())?.querySelector("a"))?.focus(); },
};
let lastG = -1e4; // when g was pressed
document.addEventListener("keydown", e => {
	if (e.key === "Escape" && e.target.closest("input")) return e.target.blur();
	if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable], dialog[open]")) return;
	if (jsonKey(e)) return e.preventDefault();
	if (e.repeat && !"jk[]".includes(e.key)) return; // one replay, however long its key is held
	if (e.key === "a" && e.timeStamp - lastG < 2000) return location.assign("/");
	lastG = e.key === "g" ? e.timeStamp : -1e4;
	if (!Object.hasOwn(keys, e.key) || e.key === " " && !(focusedRow() && $("#rows input") && e.target.localName === "a")) return;
	e.preventDefault();
	keys[e.key](focusedRow()?.id || currentID());
});
decorate(document);
arrangeRows();
showNotices();
$("#sidebar [aria-current=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
if (isWide.matches && currentID()) document.getElementById(currentID())?.scrollIntoView({ block: "nearest" });
connect();
})();
