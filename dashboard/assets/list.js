// The list of events. New rows are inserted, a few in each frame, and wait while the user reads further down. This file also has the days, folded retries, the
// selection, and the links from the open event to its neighbours.
"use strict";
const maxRows = 300, rowsPerFrame = 12;
const pendingRows = new Map(); // event id -> {name, html}: rows not shown yet
let listIsStale = false, frame = 0;
const currentID = () => $("#event")?.dataset.eventId || "";

function markRow(id) {
	const row = id && document.getElementById(id);
	for (const a of $$("#rows a[aria-current]")) if (a.parentElement !== row) a.removeAttribute("aria-current");
	if (row) $("a", row).setAttribute("aria-current", "true");
}
// arrangeRows adds what depends on the neighbours of a row: the selection, days, retries of one delivery, and the links from the open event to the events above and
// below it.
function arrangeRows() {
	const rows = [...$("#rows")?.children ?? []], seen = new Map(), id = currentID();
	let day = "";
	for (const row of rows) {
		row.day ??= dayOf(new Date($("time", row).dateTime)); // kept with the row, because few of 300 rows are new
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
	if ($("#count") && !$("#count").textContent.includes(" of ")) setText($("#count"), $("#count").textContent.replace(/\d+/, rows.length));
	if ($("#event")) {
		const at = rows.findIndex(row => row.id === id);
		for (const [name, row] of [["newer", rows[at - 1]], ["older-event", at < 0 ? null : rows[at + 1]]]) {
			const link = document.getElementById(name), href = row && $("a", row).getAttribute("href");
			setHidden(link, !href);
			if (href && link.getAttribute("href") !== href) { link.href = href; link.dataset.part = ""; }
		}
	}
}
function dayOf(at) {
	const day = at.toDateString();
	if (day === new Date().toDateString()) return "";
	return day === new Date(Date.now() - 864e5).toDateString() ? "Yesterday" : at.toLocaleDateString("en", { weekday: "short", day: "numeric", month: "short" });
}
// At midnight an open page gets a new heading, because the events of that day become those of yesterday.
let today = new Date().toDateString();
function followDay() {
	const now = new Date().toDateString();
	if (now === today) return;
	today = now;
	for (const row of $$("#rows > li")) row.day = undefined;
	arrangeRows();
}
setInterval(followDay, 20000);
document.addEventListener("visibilitychange", followDay);
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

const isHeld = () => (isWide.matches ? $("#list").scrollTop : scrollY) > 120 || !$("#follow")?.checked;
function schedule() { frame ||= requestAnimationFrame(flush); }
function flush() {
	frame = 0;
	if (isBeingRead("list")) return; // the list that is being read may be older than the waiting rows, and would remove them
	const hold = $("#rows") && isHeld(); // computed once, because reading the scroll position forces a layout
	if (listIsStale && !hold) { listIsStale = false; pendingRows.clear(); return void reread("list"); }
	let shown = 0;
	for (const [id, message] of pendingRows) {
		const old = document.getElementById(id);
		if (!old && message.name === "row" && hold) continue;
		pendingRows.delete(id);
		if (old) {
			const before = $(".pill", old)?.textContent;
			morph(old, parse(message.html).firstElementChild);
			decorate(old);
			if ($(".pill", old)?.textContent !== before) old.dataset.changed = "1";
		}
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
	if (!below && rows.firstElementChild && !older.parentNode.hidden) return; // the row belongs to the page with older events
	row.dataset.new = "1";
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
	if (count > maxRows) { pendingRows.clear(); listIsStale = true; } // the list is read again when the user presses the button
	setHidden(button, count === 0 && !listIsStale);
	setText(button, listIsStale ? "New events" : `${count} new`);
}
function receiveRow(name, html) {
	const id = /id="(\w+)"/.exec(html)[1], isNew = name === "row" && !document.getElementById(id) && !pendingRows.has(id);
	if (ahead.href.includes(id)) {
		forgetAhead();
		readAhead();
	}
	if (id === currentID()) reread("event");
	else if (opening.includes(id)) isOutdated = true;
	if (document.hidden && isNew) countUnseen(html);
	pendingRows.set(id, { name, html });
	schedule();
}
document.addEventListener("animationend", e => { const row = e.target.closest("#rows > li, .attempt"); delete row?.dataset.new; delete row?.dataset.changed; });
addEventListener("scroll", () => { if ((pendingRows.size || listIsStale) && !isHeld()) schedule(); }, { passive: true, capture: true });
document.addEventListener("click", e => {
	if (e.target.id !== "new") return;
	$("#follow").checked = true;
	(isWide.matches ? $("#list") : window).scrollTo(0, 0);
	schedule();
});
document.addEventListener("change", e => {
	if (e.target.id === "follow") schedule();
	if (e.target.form?.id === "many") setText($("#many button"), `Replay selected (${$$("#rows input:checked").length})…`);
});
