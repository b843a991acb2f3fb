// Live rows, replays in place, copying and keys. Every page works without it.
"use strict";
(() => {
const most = 300, perFrame = 25;
const $ = (sel, from = document) => from.querySelector(sel);
const $$ = (sel, from = document) => [...from.querySelectorAll(sel)];
const waiting = new Map(); // event id -> {name, html}: rows not shown yet
let source, lastID = "", panel = "", again = false, frame = 0, quiet = 0, reading = null, linked = "";
function say(text) {
	$("#say").textContent = text;
	clearTimeout(quiet);
	quiet = setTimeout(say, 8000, "");
}
function parse(html) {
	const t = document.createElement("template");
	t.innerHTML = html; // made by the server, which escapes what others wrote
	local(t.content);
	return t.content;
}
// Times come in UTC, which their title keeps, and are shown in the zone of whoever looks.
const iso = at => new Date(at - at.getTimezoneOffset() * 6e4).toISOString().replace("T", " "), zoned = new Date().getTimezoneOffset() !== 0;
function local(el) {
	for (const t of zoned ? $$("time", el) : []) {
		const at = new Date(t.dateTime), here = iso(at), clock = /\d\d:[\d:.]+/.exec(t.textContent)[0].length;
		const day = /^\d{4}/.test(t.textContent) ? here.slice(0, 11) : here.slice(0, 10) === iso(new Date()).slice(0, 10) ? "" : at.toLocaleDateString("en", { month: "short", day: "numeric" }) + " ";
		t.textContent = day + here.slice(11, 11 + clock);
	}
	for (const z of $$(".zone", el)) z.hidden = zoned;
}
function utc(field) { // a time typed in that zone, as the server reads it
	const typed = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?$/.exec(field.value.trim()), at = typed && new Date(`${typed[1]}T${typed[2] || "00:00"}`);
	if (zoned && at > 0) field.value = at.toISOString();
}
// Parts of pages.
async function part(url, init = {}) {
	const r = await fetch(url, { ...init, headers: { "X-Partial": "1" } }), content = parse(await r.text()), failed = $("[data-status]", content);
	if (r.status === 401) return location.reload();
	if (r.ok) return content;
	say((failed || content).textContent.trim() || "This did not work; try again.");
}
const newest = el => $$("[data-attempt]", el).slice(-1).map(a => `Attempt ${a.dataset.attempt}: ` + [...new Set([a.dataset.state, $(".pill", a).textContent, $(".place", a)?.textContent])].join(" ").trim()).join();
function put(fresh, old) {
	const inside = old.contains(document.activeElement) && document.activeElement;
	const many = old.localName === "tr", before = many ? "" : newest(old), made = !many && $("#made", old);
	if (made && !$("#made", fresh)) $("#shares", fresh)?.querySelector("h2").after(made);
	const left = !many && $(".attempts", old)?.scrollLeft;
	old.replaceWith(fresh);
	if (!many) enhance(fresh);
	if ($("#follow", old)?.checked === false) $("#follow", fresh).checked = false;
	if (left) $(".attempts", fresh)?.scrollTo(left, 0);
	const near = inside && (document.getElementById(inside.closest("[id]").id) || fresh); // what is at its place now gets the focus
	if (inside) (near.id === inside.id ? near : $$(inside.localName, near).find(e => e.textContent === inside.textContent) || $("#replay, a", fresh))?.focus({ preventScroll: true });
	if (fresh.id === "event" && newest(fresh) !== before) say(newest(fresh));
}
function swap(content) {
	const both = content ? $$("#event, #alias, #stream", content).map(fresh => [fresh, document.getElementById(fresh.id)]).filter(([, old]) => old) : [];
	for (const [fresh, old] of both) put(fresh, old);
	return both.length > 0;
}
function reread() { // one at a time; what comes meanwhile is read once more
	const at = location.href;
	if (reading) return void (again = true);
	reading = part(at).then(content => { if (at === location.href) swap(content); else again = true; }).catch(() => say("The relay cannot be reached.")).finally(() => {
		reading = null;
		if (again) later();
	});
}
async function go(url) {
	if (!swap(await part(url))) return;
	history.pushState(null, "", url);
	if (url.hash) document.getElementById(url.hash.slice(1))?.scrollIntoView();
}
async function post(url, body) {
	const before = newest(document), content = await part(url, { method: "POST", body });
	if (!content || swap(content)) return;
	if (newest(document) === before) say(content.textContent.trim()); // else it was overtaken by its end
	if ($("#event")) reread();
}
// Live updates.
const held = () => scrollY > 120 || !$("#follow")?.checked;
function later() { frame ||= requestAnimationFrame(flush); }
function flush() {
	frame = 0;
	const hold = $("#rows") && held(); // once: it makes the browser lay out the page
	if (again && !hold) { again = false; waiting.clear(); return reread(); }
	if (panel) { put(parse(panel).firstElementChild, $("#alias")); panel = ""; }
	let shown = 0;
	for (const [id, m] of waiting) {
		const old = document.getElementById(id);
		if (!old && m.name === "row" && hold) continue;
		waiting.delete(id);
		if (old) put(parse(m.html).firstElementChild, old);
		else if (m.name === "row") insert(id, m.html);
		if (++shown === perFrame) break;
	}
	pill();
	if (shown === perFrame) later();
}
function insert(id, html) {
	const rows = $("#rows");
	let below = rows.firstElementChild;
	while (below && below.id > id) below = below.nextElementSibling; // ids are in order of arrival
	if (!below && rows.firstElementChild && !$("#older").parentNode.hidden) return; // on an older page
	rows.insertBefore(parse(html), below);
	$("#empty")?.remove();
	if (rows.children.length <= most) return;
	const older = $("#older"), url = new URL(older.href);
	rows.lastElementChild.remove();
	url.searchParams.set("cursor", rows.lastElementChild.id);
	older.href = url;
	older.parentNode.hidden = false;
}
function pill() {
	const n = [...waiting.values()].filter(m => m.name === "row").length, b = $("#new");
	if (!b) return;
	if (n > most) { waiting.clear(); again = true; } // read again when they are wanted
	b.hidden = n === 0 && !again;
	b.textContent = again ? "New events" : `${n} new`;
}
function take(name, e) {
	lastID = e.lastEventId || lastID;
	if (name === "event") return reread();
	if (name === "resync") again = true;
	else if (name === "alias") panel = e.data;
	else waiting.set(/id="(\w+)"/.exec(e.data)[1], { name, html: e.data });
	later();
}
function connect() {
	const at = $("[data-live]");
	source?.close();
	if (!at || document.hidden) return;
	const url = new URL(at.dataset.live, location.href), tell = text => { linked = text; enhance(document); };
	if (lastID) url.searchParams.set("after", lastID);
	source = new EventSource(url);
	source.onopen = () => tell("live");
	source.onerror = () => { tell("reconnecting…"); if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000); };
	for (const name of ["row", "update", "alias", "event", "resync"]) source.addEventListener(name, e => take(name, e));
}
document.addEventListener("visibilitychange", connect);
addEventListener("scroll", () => { if ((waiting.size || again) && !held()) later(); }, { passive: true });
addEventListener("popstate", reread);
// Copying.
async function copy(text) {
	try { await navigator.clipboard.writeText(text); say("Copied."); } catch { // no permission, or no https: show it, selected
		const d = parse('<dialog><p>Copy this:</p><textarea readonly rows="8" cols="60" aria-label="Text to copy"></textarea><form method="dialog"><button>Close</button></form></dialog>').firstElementChild;
		document.body.append(d);
		$("textarea", d).value = text;
		d.onclose = () => d.remove();
		d.showModal();
		$("textarea", d).select();
	}
}
const copyFrom = async url => { const r = await fetch(url); if (r.ok) copy(await r.text()); };
function enhance(el) {
	for (const b of $$("[data-copy], [data-copy-from], .tools", el)) b.hidden = false;
	for (const p of $$("#link", el)) p.dataset.is = p.textContent = linked;
}
document.addEventListener("click", e => {
	const t = e.target.closest("[data-copy], [data-copy-from], a[data-part], #new, #show-keys");
	if (!t || e.ctrlKey || e.metaKey || e.shiftKey) return;
	if (t.dataset.copy) copy($(t.dataset.copy).textContent);
	else if (t.dataset.copyFrom) copyFrom(t.dataset.copyFrom);
	else if (t.id === "new") { $("#follow").checked = true; scrollTo(0, 0); later(); }
	else { e.preventDefault(); t.id === "show-keys" ? keys["?"]() : go(new URL(t.href)); }
});
document.addEventListener("change", e => { if (e.target.id === "follow") later(); });
document.addEventListener("submit", e => {
	const f = e.target, fields = new URLSearchParams(new FormData(f));
	if (f.matches("[role=search]")) return void $$("[name=since], [name=until]", f).forEach(utc);
	if (f.matches("[data-post]")) post(f.action, fields);
	else if (f.matches("[data-part]")) { const url = new URL(f.action); url.search = fields; go(url); }
	else return;
	e.preventDefault();
});
// Keys.
const here = () => $("#event")?.dataset.eventId || document.activeElement.closest("[data-event-id]")?.dataset.eventId;
function move(by) {
	const all = $$("#rows a, [data-attempt]"), at = all.findIndex(a => a.contains(document.activeElement));
	all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
}
const keys = {
	j: () => move(1), k: () => move(-1),
	r: id => id && post(`/events/${id}/replay`), x: id => id && post(`/events/${id}/cancel`),
	c: id => id && copyFrom(`/api/v1/events/${id}/export?format=curl`),
	d: () => $("#compare")?.requestSubmit(), f: () => $("#follow")?.click(),
	s: id => $("#share") ? $("#share").focus() : id && location.assign(`/events/${id}#shares`),
	"/": () => { const s = $("#search"); if (s) { s.closest("details").open = true; s.focus(); } },
	"?": () => $("#keys")?.showModal(),
};
let g = -1e4; // when g was pressed
document.addEventListener("keydown", e => {
	if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, [contenteditable], dialog")) return;
	if (e.key === "a" && e.timeStamp - g < 2000) return location.assign("/");
	g = e.key === "g" ? e.timeStamp : -1e4;
	if (Object.hasOwn(keys, e.key)) { e.preventDefault(); keys[e.key](here()); }
});
local(document);
enhance(document);
connect();
})();
