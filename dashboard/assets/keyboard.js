// Keyboard shortcuts. A replay by key in the list waits three seconds, in which it can be cancelled.
"use strict";
const restBeforeOpen = 80, undoSeconds = 3; // milliseconds before the focused event is opened, and seconds in which a replay can be cancelled

// replayNow presses the replay button of an event, unless it did so in the last half second.
let replayedAt = -1e4;
function replayNow(id) {
	const button = id === currentID() ? $("#replay") : $(`#${id} button[formaction]`);
	if (performance.now() - replayedAt < 500 || !button || button.disabled) return;
	replayedAt = performance.now();
	button.form.requestSubmit(button);
}

// A replay by key in the list waits undoSeconds, so that Escape can cancel it.
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
	nextLink = by > 0 ? "#older-event" : "#newer";
	openTimer = setTimeout(() => { if (row.id !== currentID()) openPage(new URL($("a", row).href)); }, isAhead($("a", row).href) ? 0 : restBeforeOpen);
}
// compareWithNeighbour compares an event with the one above it in the list, or the first event with the one below it.
function compareWithNeighbour(id) {
	const rows = visibleRows(), at = rows.findIndex(row => row.id === id), other = at < 0 ? null : rows[at - 1] ?? rows[at + 1];
	const [left, right] = other?.id < id ? [other.id, id] : [id, other?.id];
	if (id) location.assign(`${$("#list").dataset.compare}?${new URLSearchParams(right ? { left, right, part: "request" } : { left })}`);
}
function openNext(link) {
	nextLink = link;
	$(`${link}:not([hidden])`)?.click();
}
const press = (button, without) => id => { if (id === currentID()) $(button) ? $(button).click() : announce(without); }; // while another row is focused, the shown buttons are not those of its event
const keys = {
	j: () => move(1), k: () => move(-1),
	"[": () => openNext("#newer"), "]": () => openNext("#older-event"),
	r: id => id && (focusedRow() ? replaySoon(id) : replayNow(id)),
	p: press("#pin"),
	x: press("#cancel", "Nothing is queued."),
	c: press("#curl"),
	f: () => $("#follow")?.click(),
	d: compareWithNeighbour,
	" ": () => $("input", focusedRow() ?? $("#main"))?.click(),
	e: press("#edit-send"),
	s: () => { $("#share-box:not(:popover-open)")?.showPopover(); ($("#share") ?? $("#shares"))?.focus(); },
	"/": () => $("#search")?.select(),
	"?": () => $("#keys")?.showModal(),
	Escape: () => { if (!cancelUndo()) (visibleRows().find(row => row.id === currentID())?.querySelector("a"))?.focus(); },
};
let lastG = -1e4; // time at which the key g was pressed; the key a after it opens the home page
document.addEventListener("keydown", e => {
	if (e.key === "Escape" && $(":popover-open")) return; // the browser closes the open menu
	if (e.key === "Escape" && e.target.closest("input")) return e.target.blur();
	// Some keyboards have the brackets on AltGr, which Windows reports as Ctrl and Alt, or on Option.
	const types = e.getModifierState("AltGraph") || e.altKey && !e.ctrlKey && "[]".includes(e.key);
	if (e.metaKey || (e.ctrlKey || e.altKey) && !types || e.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") || $("dialog[open]")) return;
	if (jsonKey(e)) return e.preventDefault();
	if (e.repeat && !"jk[]".includes(e.key)) return; // a held key acts once, except the keys that move
	if (e.key === "a" && e.timeStamp - lastG < 2000) return $(".brand").click();
	lastG = e.key === "g" ? e.timeStamp : -1e4;
	if (!Object.hasOwn(keys, e.key) || e.key === " " && !(focusedRow() && $("#rows input") && e.target.localName === "a")) return;
	e.preventDefault();
	keys[e.key](focusedRow()?.id || currentID());
});
