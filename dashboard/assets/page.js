// What the other scripts and every page need: announcements, times, folds, and forms that are sent
// once. Every page works without these scripts.
"use strict";
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
const make = (name, properties) => Object.assign(document.createElement(name), properties);

// announce shows a message, which screen readers also read.
let announceTimer = 0;
function announce(text = "", isError = false) {
	const say = $("#say");
	say.textContent = text;
	say.className = isError ? "error" : "";
	clearTimeout(announceTimer);
	announceTimer = setTimeout(announce, isError ? 15000 : 8000);
}

// stored and store use the storage of this browser, which may be forbidden.
function stored(key, fallback) {
	try { return JSON.parse(localStorage.getItem(key)) ?? fallback; } catch { return fallback; }
}
function store(key, value) {
	try { localStorage.setItem(key, JSON.stringify(value)); } catch {} // the value is then not kept
}

// Times arrive in UTC. Relative ones are kept up to date, exact ones are shown in the
// time zone of the browser, with that zone; the title has the exact local time.
const localISO = at => new Date(at - at.getTimezoneOffset() * 6e4).toISOString().replace("T", " ");
const outsideUTC = new Date().getTimezoneOffset() !== 0;
function zoneOf(at) {
	const ahead = -at.getTimezoneOffset();
	return ` ${ahead < 0 ? "-" : "+"}${new Date(Math.abs(ahead) * 6e4).toISOString().slice(11, 16)}`;
}
function relativeText(at) { // returns the same texts as RelativeText in page/time.go
	const seconds = Math.floor(Math.abs(Date.now() - at) / 1000);
	const units = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [60 * 86400, 86400, "d"]];
	const unit = units.find(([limit]) => seconds < limit);
	if (seconds < 5) return "now";
	if (!unit) return localISO(at).slice(0, 10);
	const text = `${Math.floor(seconds / unit[1])} ${unit[2]}`;
	return at > Date.now() ? `in ${text}` : `${text} ago`;
}
function setText(el, text) { if (el.textContent !== text) el.textContent = text; }
function setHidden(el, hidden) { if (el.hidden !== hidden) el.hidden = hidden; } // setting the same value again would restyle the element
function showTimes(from) {
	for (const t of $$("time", from)) {
		const at = new Date(t.dateTime), local = localISO(at);
		if (t.className === "rel") setText(t, relativeText(at));
		else if (t.className === "clock") setText(t, local.slice(11, 19));
		else if (outsideUTC) setText(t, local.slice(0, t.dataset.length ??= / (\d\d:[\d:.]+)/.exec(t.textContent)[1].length + 11) + zoneOf(at));
		t.title = outsideUTC ? `${local.slice(0, 19)} (${t.dateTime})` : t.dateTime;
	}
}
setInterval(() => { if (!document.hidden) showTimes(document); }, 20000);
// wordsInUTC converts the times in a typed search that have no zone: they are local times, and the server reads them as UTC.
const wordsInUTC = words => words.replace(/\b(since|until):(?:"([^"]*)"|(\S+))(?=\s|$)/g, (word, name, quoted, plain) => {
	const [typed, day, clock = "00:00"] = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?$/.exec(quoted ?? plain) ?? [];
	const at = new Date(`${day}T${clock}`);
	return outsideUTC && typed && !isNaN(at) ? `${name}:${at.toISOString()}` : word;
});

// The state of each fold is stored by the kind of its content (data-fold), so that the next event opens with the same folds.
const folds = stored("folds", {});
document.addEventListener("toggle", e => {
	const name = e.target.dataset?.fold;
	if (!name || folds[name] === e.target.open) return;
	folds[name] = e.target.open;
	store("folds", folds);
}, true);

const setFolds = from => { for (const fold of $$("[data-fold]", from)) fold.open = folds[fold.dataset.fold] ?? fold.open; };
const showControls = from => { for (const el of $$("[data-copy], [data-copy-from], [data-copy-table], [data-copy-body], .tools", from)) el.hidden = false; };
// decorate prepares elements that the server sent; it may run again on the same elements.
function decorate(from) {
	showTimes(from);
	showControls(from);
	for (const pre of $$("pre.json", from)) showJSON(pre);
}
function parse(html) {
	const template = document.createElement("template");
	template.innerHTML = html; // the HTML was rendered by the server, which escapes all foreign text
	setFolds(template.content);
	showControls(template.content);
	return template.content;
}

// A form is sent once, also by a double click or a held Enter key.
const acts = form => form?.method === "post";
const ignoreAgain = (e, form) => { if ((e.detail > 1 || e.repeat && e.key === "Enter" && e.target.localName !== "textarea") && acts(form)) e.preventDefault(); };
document.addEventListener("click", e => ignoreAgain(e, e.target.closest("button")?.form), true);
document.addEventListener("keydown", e => ignoreAgain(e, e.target.form), true);
let sentForm = null;
document.addEventListener("submit", e => {
	if (!acts(e.target) || e.target.matches("[data-post]")) return;
	if (sentForm === e.target) e.preventDefault();
	sentForm = e.target;
});
addEventListener("pageshow", () => { sentForm = null; });

setFolds(document);
showTimes(document);
