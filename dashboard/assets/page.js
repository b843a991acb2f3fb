// What every page shares: announcements, times, folds, copying, and the replacement of
// parts of a page. Every page works without these scripts.
"use strict";
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
const make = (name, properties) => Object.assign(document.createElement(name), properties);

// Announcements.
let announceTimer = 0;
function announce(text = "", isError = false) {
	const say = $("#say");
	say.textContent = text;
	say.className = isError ? "error" : "";
	clearTimeout(announceTimer);
	announceTimer = setTimeout(announce, isError ? 15000 : 8000);
}

// Storage of this browser. It may be forbidden.
function stored(key, fallback) {
	try { return JSON.parse(localStorage.getItem(key)) ?? fallback; } catch { return fallback; }
}
function store(key, value) {
	try { localStorage.setItem(key, JSON.stringify(value)); } catch { /* not kept then */ }
}

// Times arrive in UTC. Relative ones are kept up to date, exact ones are shown in the
// time zone of the browser; the title has the exact local time.
const localISO = at => new Date(at - at.getTimezoneOffset() * 6e4).toISOString().replace("T", " ");
const outsideUTC = new Date().getTimezoneOffset() !== 0;
function relativeText(at) { // says the same as relativeText in form.go
	const seconds = Math.floor(Math.abs(Date.now() - at) / 1000);
	const units = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [60 * 86400, 86400, "d"]];
	const unit = units.find(([limit]) => seconds < limit);
	if (seconds < 5) return "now";
	if (!unit) return localISO(at).slice(0, 10);
	const text = `${Math.floor(seconds / unit[1])} ${unit[2]}`;
	return at > Date.now() ? `in ${text}` : `${text} ago`;
}
function setText(el, text) { if (el.textContent !== text) el.textContent = text; }
function setHidden(el, hidden) { if (el.hidden !== hidden) el.hidden = hidden; } // writing the same value again restyles it
function showTimes(from) {
	for (const t of $$("time", from)) {
		const at = new Date(t.dateTime), local = localISO(at);
		if (t.classList.contains("rel")) setText(t, relativeText(at));
		else if (outsideUTC) setText(t, local.slice(0, t.dataset.length ??= / (\d\d:[\d:.]+)/.exec(t.textContent)[1].length + 11));
		t.title = outsideUTC ? `${local.slice(0, 19)} (${t.dateTime})` : t.dateTime;
	}
}
setInterval(() => { if (!document.hidden) showTimes(document); }, 20000);
// wordsInUTC converts the times of a typed search, which are local ones, for the server.
const wordsInUTC = words => words.replace(/\b(since|until):(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d)?))?(?=\s|$)/g, (word, name, day, clock = "00:00") =>
	outsideUTC ? `${name}:${new Date(`${day}T${clock}`).toISOString()}` : word);

// Folds are remembered by what they hold, so that the next event opens as this one was left.
const folds = stored("folds", {});
document.addEventListener("toggle", e => {
	const name = e.target.dataset?.fold;
	if (!name || folds[name] === e.target.open) return;
	folds[name] = e.target.open;
	store("folds", folds);
}, true);

const showControls = from => { for (const el of $$("[data-copy], [data-copy-from], [data-copy-table], .tools", from)) el.hidden = false; };
// decorate prepares what the server sent; it may run again on the same elements.
function decorate(from) {
	showTimes(from);
	showControls(from);
	for (const pre of $$("pre.json", from)) showJSON(pre);
}
function parse(html) {
	const template = document.createElement("template");
	template.innerHTML = html; // rendered by the server, which escapes all foreign text
	for (const fold of $$("[data-fold]", template.content)) fold.open = folds[fold.dataset.fold] ?? fold.open;
	showControls(template.content);
	return template.content;
}

// A hidden input says what a field was before something else was typed in it.
const isTyped = ({ name, form }, field = name?.startsWith?.("was.") && form.elements[name.slice(4)]) => field && field.value !== field.defaultValue;
// morph makes old equal to fresh and keeps the elements that are in both, with their focus,
// scroll position, selection and folds. Children are matched by id, the others in order.
function morph(old, fresh) {
	if (old.nodeName !== fresh.nodeName || old.id !== fresh.id) return old.replaceWith(fresh);
	if (old.nodeType !== Node.ELEMENT_NODE) {
		if (old.data !== fresh.data) old.data = fresh.data;
		return;
	}
	if (old.jsonSource !== undefined && old.jsonSource === fresh.textContent) return; // a JSON view of the same text
	if (old.jsonSource !== undefined || old.localName === "pre" && old.className !== fresh.className) return old.replaceWith(fresh);
	const kept = name => name === "open" || name === "title" && old.localName === "time" || old.parentNode?.id === "rows" && (name === "class" || name === "data-day" || name === "hidden") ||
		name === "aria-current" && old.parentNode?.id === "sidebar" || // updates do not know which page they are for
		name === "value" && isTyped(old) && !("told" in fresh.dataset);
	for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !kept(name)) old.removeAttribute(name);
	for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && !kept(name)) old.setAttribute(name, value);
	if (old.localName === "time" && old.dateTime === fresh.dateTime) return; // its text is the script's
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

// A form is sent once, also by a double click or a held Enter key.
const acts = form => form?.method === "post";
const ignoreAgain = (e, form) => { if ((e.detail > 1 || e.repeat && e.key === "Enter" && e.target.localName !== "textarea") && acts(form)) e.preventDefault(); };
document.addEventListener("click", e => ignoreAgain(e, e.target.closest("button")?.form), true);
document.addEventListener("keydown", e => ignoreAgain(e, e.target.form), true);
let sentForm = null;
document.addEventListener("submit", e => {
	if (!acts(e.target) || e.target.matches("#act, [data-post]")) return;
	if (sentForm === e.target) e.preventDefault();
	sentForm = e.target;
});
addEventListener("pageshow", () => { sentForm = null; });

// Copying.
async function copyText(text) {
	try {
		await navigator.clipboard.writeText(text);
		announce("Copied.");
	} catch { // no permission or no https: show the text, selected
		$("#copy textarea").value = text;
		$("#copy").showModal();
		$("#copy textarea").select();
	}
}
async function copyFrom(url) {
	const response = await fetch(url), text = await response.text();
	if (response.ok) return copyText(text);
	let problem = {}; // says why
	try { problem = JSON.parse(text); } catch { /* not from the API */ }
	announce(problem.detail ? `Not copied: ${problem.detail}.` : `This could not be read (status ${response.status}).`, true);
}
const tableText = table => $$("tr", table).map(row => $$("code", row).map(cell => cell.textContent).join(": ")).join("\n");
document.addEventListener("click", e => {
	const button = e.target.closest("[data-copy], [data-copy-from], [data-copy-table]");
	const value = !button && getSelection().isCollapsed && e.target.closest(".pairs td code, .pairs th code");
	if (value) copyText(value.closest("tr").querySelector("td code").textContent);
	if (!button) return;
	if (button.dataset.copy) copyText($(button.dataset.copy).textContent);
	else if (button.dataset.copyTable) copyText(tableText($(button.dataset.copyTable)));
	else copyFrom(button.dataset.copyFrom);
});

// A menu closes when something else is clicked, or something in it is chosen.
document.addEventListener("click", e => {
	for (const menu of $$(".menu[open]")) if (!menu.contains(e.target) || e.target.closest("a")) menu.open = false;
});

document.addEventListener("change", e => { if (e.target.id === "theme") e.target.form.requestSubmit(); });
for (const fold of $$("[data-fold]")) fold.open = folds[fold.dataset.fold] ?? fold.open;
showTimes(document);
