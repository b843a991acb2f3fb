// Live rows, replays in place, copying and keys. Every page works without it.
"use strict";
(() => {
const maxRows = 300, rowsPerFrame = 25;
const $ = (sel, from = document) => from.querySelector(sel);
const $$ = (sel, from = document) => [...from.querySelectorAll(sel)];
const pendingRows = new Map(); // event id -> {name, html}: rows not shown yet
let source, lastID = "", pendingPanel = "", rereadPending = false, frameRequest = 0, statusTimer = 0, currentRead = null, connectionState = "";
function announce(text) {
	$("#say").textContent = text;
	clearTimeout(statusTimer);
	statusTimer = setTimeout(announce, 8000, "");
}
function parse(html) {
	const t = document.createElement("template");
	t.innerHTML = html; // rendered by the server, which escapes all foreign text
	localizeTimes(t.content);
	return t.content;
}
// Times arrive in UTC and are shown in the browser's time zone; the title keeps UTC.
const localISO = at => new Date(at - at.getTimezoneOffset() * 6e4).toISOString().replace("T", " "), outsideUTC = new Date().getTimezoneOffset() !== 0;
function localizeTimes(el) {
	for (const t of outsideUTC ? $$("time", el) : []) {
		const at = new Date(t.dateTime), shown = localISO(at), clock = /\d\d:[\d:.]+/.exec(t.textContent)[0].length;
		const day = /^\d{4}/.test(t.textContent) ? shown.slice(0, 11) : shown.slice(0, 10) === localISO(new Date()).slice(0, 10) ? "" : at.toLocaleDateString("en", { month: "short", day: "numeric" }) + " ";
		t.textContent = day + shown.slice(11, 11 + clock);
	}
	for (const z of $$(".zone", el)) z.hidden = outsideUTC;
}
function toUTC(field) { // converts a typed local time to UTC for the server
	const typed = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?$/.exec(field.value.trim()), at = typed && new Date(`${typed[1]}T${typed[2] || "00:00"}`);
	if (outsideUTC && at > 0) field.value = at.toISOString();
}
// Parts of pages.
async function fetchPart(url, init = {}) {
	const r = await fetch(url, { ...init, headers: { "X-Partial": "1" } }), content = parse(await r.text()), failed = $("[data-status]", content);
	if (r.status === 401) return location.reload();
	if (r.ok) return content;
	announce((failed || content).textContent.trim() || "This did not work; try again.");
}
const latestAttempt = el => $$("[data-attempt]", el).slice(-1).map(a => `Attempt ${a.dataset.attempt}: ` + [...new Set([a.dataset.state, $(".pill", a).textContent, $(".place", a)?.textContent])].join(" ").trim()).join();
function replaceElement(fresh, old) {
	const focused = old.contains(document.activeElement) && document.activeElement;
	const isRow = old.localName === "tr", before = isRow ? "" : latestAttempt(old), newShare = !isRow && $("#made", old);
	if (newShare && !$("#made", fresh)) $("#shares", fresh)?.querySelector("h2").after(newShare);
	const left = !isRow && $(".attempts", old)?.scrollLeft;
	old.replaceWith(fresh);
	if (!isRow) showScriptControls(fresh);
	if ($("#follow", old)?.checked === false) $("#follow", fresh).checked = false;
	if (left) $(".attempts", fresh)?.scrollTo(left, 0);
	const focusTarget = focused && (document.getElementById(focused.closest("[id]").id) || fresh); // the focus stays on the element that replaced the focused one
	if (focused) (focusTarget.id === focused.id ? focusTarget : $$(focused.localName, focusTarget).find(e => e.textContent === focused.textContent) || $("#replay, a", fresh))?.focus({ preventScroll: true });
	const after = fresh.id === "event" ? latestAttempt(fresh) : before;
	if (after !== before && !after.includes(": delivering")) announce(after); // its start was announced by the answer to the form
}
function swapParts(content) {
	const pairs = content ? $$("#event, #alias, #stream", content).map(fresh => [fresh, document.getElementById(fresh.id)]).filter(([, old]) => old) : [];
	for (const [fresh, old] of pairs) replaceElement(fresh, old);
	return pairs.length > 0;
}
function readAgain() { // one read at a time; a change during it causes one more
	const at = location.href;
	if (currentRead) return void (rereadPending = true);
	currentRead = fetchPart(at).then(content => { if (at === location.href) swapParts(content); else rereadPending = true; }).catch(() => announce("The relay cannot be reached.")).finally(() => {
		currentRead = null;
		if (rereadPending) scheduleFlush();
	});
}
async function navigate(url) {
	if (!swapParts(await fetchPart(url))) return;
	history.pushState(null, "", url);
	if (url.hash) document.getElementById(url.hash.slice(1))?.scrollIntoView();
}
async function postForm(url, body) {
	const before = latestAttempt(document), content = await fetchPart(url, { method: "POST", body });
	if (!content || swapParts(content)) return;
	if (latestAttempt(document) === before) announce(content.textContent.trim()); // the attempt may have ended already, which was announced
	if ($("#event")) readAgain();
}
// Live updates.
const isHeld = () => scrollY > 120 || !$("#follow")?.checked;
function scheduleFlush() { frameRequest ||= requestAnimationFrame(flush); }
function flush() {
	frameRequest = 0;
	const holdRows = $("#rows") && isHeld(); // read once: it forces a layout
	if (rereadPending && !holdRows) { rereadPending = false; pendingRows.clear(); return readAgain(); }
	if (pendingPanel) { replaceElement(parse(pendingPanel).firstElementChild, $("#alias")); pendingPanel = ""; }
	let shown = 0;
	for (const [id, m] of pendingRows) {
		const old = document.getElementById(id);
		if (!old && m.name === "row" && holdRows) continue;
		pendingRows.delete(id);
		if (old) replaceElement(parse(m.html).firstElementChild, old);
		else if (m.name === "row") insertRow(id, m.html);
		if (++shown === rowsPerFrame) break;
	}
	showNewCount();
	if (shown === rowsPerFrame) scheduleFlush();
}
function insertRow(id, html) {
	const rows = $("#rows");
	let below = rows.firstElementChild;
	while (below && below.id > id) below = below.nextElementSibling; // ids are in order of arrival
	if (!below && rows.firstElementChild && !$("#older").parentNode.hidden) return; // on an older page
	rows.insertBefore(parse(html), below);
	$("#empty")?.remove();
	if (rows.children.length <= maxRows) return;
	const older = $("#older"), url = new URL(older.href);
	rows.lastElementChild.remove();
	url.searchParams.set("cursor", rows.lastElementChild.id);
	older.href = url;
	older.parentNode.hidden = false;
}
function showNewCount() {
	const n = [...pendingRows.values()].filter(m => m.name === "row").length, b = $("#new");
	if (!b) return;
	if (n > maxRows) { pendingRows.clear(); rereadPending = true; } // the list is read again when the person asks for it
	b.hidden = n === 0 && !rereadPending;
	b.textContent = rereadPending ? "New events" : `${n} new`;
}
function receive(name, e) {
	lastID = e.lastEventId || lastID;
	if (name === "event") return readAgain();
	if (name === "resync") rereadPending = true;
	else if (name === "alias") pendingPanel = e.data;
	else pendingRows.set(/id="(\w+)"/.exec(e.data)[1], { name, html: e.data });
	scheduleFlush();
}
// refusalOf asks why the server refused live updates: an EventSource does not tell the status.
async function refusalOf(url) {
	try {
		const { status } = await fetch(url, { method: "HEAD" });
		if (status === 429) return "too many live pages at once";
		if (status === 401 || status === 403 || status === 404) return "no access any more";
		return status < 400 ? "" : `refused with status ${status}`;
	} catch { // no connection
		return "";
	}
}
function openStream() {
	const at = $("[data-live]");
	source?.close();
	if (!at || document.hidden) return;
	const url = new URL(at.dataset.live, location.href), showConnection = text => { connectionState = text; showScriptControls(document); };
	if (lastID) url.searchParams.set("after", lastID);
	source = new EventSource(url);
	source.onopen = () => showConnection("live");
	source.onerror = async e => {
		if (e.target.readyState !== EventSource.CLOSED) return showConnection("reconnecting…"); // by the browser
		setTimeout(() => { if (source === e.target) openStream(); }, 3000);
		const reason = await refusalOf(url);
		if (source === e.target) showConnection(reason ? `${reason}, trying again…` : "reconnecting…");
	};
	for (const name of ["row", "update", "alias", "event", "resync"]) source.addEventListener(name, e => receive(name, e));
}
document.addEventListener("visibilitychange", openStream);
addEventListener("scroll", () => { if ((pendingRows.size || rereadPending) && !isHeld()) scheduleFlush(); }, { passive: true });
addEventListener("popstate", readAgain);
// Copying.
async function copyText(text) {
	try { await navigator.clipboard.writeText(text); announce("Copied."); } catch { // no permission or no https: show the text, selected
		const d = parse('<dialog><p>Copy this:</p><textarea readonly rows="8" cols="60" aria-label="Text to copy"></textarea><form method="dialog"><button>Close</button></form></dialog>').firstElementChild;
		document.body.append(d);
		$("textarea", d).value = text;
		d.onclose = () => d.remove();
		d.showModal();
		$("textarea", d).select();
	}
}
const copyFrom = async url => { const r = await fetch(url); if (r.ok) copyText(await r.text()); };
function showScriptControls(el) {
	for (const b of $$("[data-copy], [data-copy-from], .tools", el)) b.hidden = false;
	for (const p of $$("#link", el)) p.dataset.is = p.textContent = connectionState;
}
document.addEventListener("click", e => {
	const t = e.target.closest("[data-copy], [data-copy-from], a[data-part], #new, #show-keys");
	if (!t || e.ctrlKey || e.metaKey || e.shiftKey) return;
	if (t.dataset.copy) copyText($(t.dataset.copy).textContent);
	else if (t.dataset.copyFrom) copyFrom(t.dataset.copyFrom);
	else if (t.id === "new") { $("#follow").checked = true; scrollTo(0, 0); scheduleFlush(); }
	else { e.preventDefault(); t.id === "show-keys" ? keys["?"]() : navigate(new URL(t.href)); }
});
document.addEventListener("change", e => { if (e.target.id === "follow") scheduleFlush(); });
document.addEventListener("submit", e => {
	const f = e.target, fields = new URLSearchParams(new FormData(f));
	if (f.matches("[role=search]")) return void $$("[name=since], [name=until]", f).forEach(toUTC);
	if (f.matches("[data-post]")) postForm(f.action, fields);
	else if (f.matches("[data-part]")) { const url = new URL(f.action); url.search = fields; navigate(url); }
	else return;
	e.preventDefault();
});
// Keys.
const currentEvent = () => $("#event")?.dataset.eventId || document.activeElement.closest("[data-event-id]")?.dataset.eventId;
function moveFocus(by) {
	const all = $$("#rows a, [data-attempt]"), at = all.findIndex(a => a.contains(document.activeElement));
	all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
}
const keys = {
	j: () => moveFocus(1), k: () => moveFocus(-1),
	r: id => id && postForm(`/events/${id}/replay`), x: id => id && postForm(`/events/${id}/cancel`),
	c: id => id && copyFrom(`/api/v1/events/${id}/export?format=curl`),
	d: () => $("#compare")?.requestSubmit(), f: () => $("#follow")?.click(),
	s: id => $("#share") ? $("#share").focus() : id && location.assign(`/events/${id}#shares`),
	"/": () => { const s = $("#search"); if (s) { s.closest("details").open = true; s.focus(); } },
	"?": () => $("#keys")?.showModal(),
};
let lastG = -1e4; // when g was pressed
document.addEventListener("keydown", e => {
	if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, [contenteditable], dialog[open]")) return;
	if (e.key === "a" && e.timeStamp - lastG < 2000) return location.assign("/");
	lastG = e.key === "g" ? e.timeStamp : -1e4;
	if (Object.hasOwn(keys, e.key)) { e.preventDefault(); keys[e.key](currentEvent()); }
});
localizeTimes(document);
showScriptControls(document);
openStream();
})();
