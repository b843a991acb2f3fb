// A view of indented JSON with three tones and folds. Lines are built only when they are shown, so that a text of several MiB is shown as fast as a short one.
"use strict";
const linesAtOnce = 300; // lines of one object or array that are built at once; a button builds more

// showJSON replaces the text of an element by the JSON view of that text.
function showJSON(pre, text = pre.textContent) {
	if (pre.jsonSource !== undefined && text === pre.textContent) return;
	pre.jsonSource ??= pre.textContent; // the text as the server sent it
	const lines = text.split("\n"), ends = new Map(), open = [];
	lines.forEach((line, i) => { // the server writes an opening bracket with content at the end of a line, and its closing bracket at the start of one
		if (/^\s*[}\]]/.test(line) && open.length) ends.set(open.pop(), i);
		if (/[{[]$/.test(line)) open.push(i);
	});
	pre.json = { lines, ends, ...foldsOf(pre, lines, ends) };
	build(pre, linesAtOnce);
}
// foldsOf returns the lines that are folded at first: the envelope around the sender's payload, and members that are the same in every event.
function foldsOf(pre, lines, ends) {
	const at = name => lines.findIndex((line, i) => ends.has(i) && line.startsWith(`  ${JSON.stringify(name)}: `));
	const core = pre.dataset.core ? at(pre.dataset.core) : -1, last = lines.length - 1;
	const groups = core < 0 ? [] : [[1, core], [ends.get(core) + 1, last]].filter(([from, to]) => to - from > 1);
	return { groups: new Map(groups), shut: new Set((pre.dataset.folded ?? "").split(" ").filter(Boolean).map(at)) };
}
// build builds the view anew. Printing and the browser's search see only built lines, so buildAll then builds all of them, or in a very long text a button with the
// number of lines left.
const build = (pre, atOnce) => { Object.assign(pre.json, { atOnce, left: 2 * atOnce }); pre.replaceChildren(); addLines(pre, pre.json, 0, pre.json.lines.length); };
const opened = json => Object.assign(json, { groups: new Map(), shut: new Set() }); // nothing is folded
const buildAll = () => { for (const pre of $$("pre.json")) if (pre.json?.atOnce === linesAtOnce) { opened(pre.json); build(pre, 20000); } };
addEventListener("beforeprint", buildAll);
addEventListener("keydown", e => { if ((e.ctrlKey || e.metaKey) && e.key === "f") buildAll(); });

// If the server sent only the beginning of a text, the button data-whole fetches the whole text.
document.addEventListener("click", async e => {
	const button = e.target.closest("[data-whole]"), pre = button && $("pre.json", button.closest(".body"));
	if (!pre) return;
	button.disabled = true;
	const response = await fetch(button.dataset.whole);
	if (!response.ok) return announce(`This could not be read (status ${response.status}).`, true);
	showJSON(pre, await response.text());
	button.parentElement.hidden = true;
	for (const copy of $$("[data-copy-body]", button.closest(".body"))) copy.dataset.copyBody = "";
});

const linesText = n => `${n} ${n === 1 ? "line" : "lines"}`;

// addLines adds the lines with the indexes from (included) to to (excluded) to the element parent.
function addLines(parent, json, from, to) {
	let count = 0;
	for (let i = from; i < to; i++, count++) {
		if (count === json.atOnce) {
			const more = make("button", { textContent: `${(to - i).toLocaleString("en")} more lines`, onclick: () => { more.remove(); addLines(parent, json, i, to); } });
			return parent.append(more);
		}
		const group = json.groups.get(i);
		if (group > i && group <= to) {
			const inner = make("div"), fold = make("details", { ontoggle: () => { if (fold.open && !inner.firstChild) { json.groups.delete(from); addLines(inner, json, first, group); } } }), first = i;
			fold.append(make("summary", { className: "ln group", tabIndex: -1, textContent: "  ", ariaLabel: `${linesText(group - i)} of the envelope` }), inner);
			fold.firstChild.dataset.line = first;
			fold.firstChild.dataset.hidden = ` ${linesText(group - first)} of the envelope `;
			parent.append(fold);
			i = group - 1;
			continue;
		}
		json.left--;
		const end = json.ends.get(i);
		if (end === undefined) {
			parent.append(lineOf(json, i, "div"));
			continue;
		}
		const inner = make("div"), fill = () => { if (!inner.firstChild) addLines(inner, json, i + 1, end); };
		const fold = make("details", { ontoggle: () => { if (fold.open) fill(); } });
		fold.append(lineOf(json, i, "summary", end - i - 1), inner);
		parent.append(fold);
		if (json.left > 0 && !json.shut.has(i)) { fold.open = true; fill(); }
		parent.append(lineOf(json, end, "div"));
		i = end;
	}
}

// lineOf returns the element of one line: its name, and its value in the tone of its kind.
function lineOf(json, i, name, hidden) {
	const el = make(name, { className: "ln", tabIndex: -1 }), line = json.lines[i];
	const [, indent, key, colon, value, comma] = /^(\s*)("(?:[^"\\]|\\.)*")?(: )?(.*?)(,?)$/.exec(line);
	const isName = key && colon;
	el.dataset.line = i;
	el.style.setProperty("--in", indent.length); // the style sheet indents wrapped lines by this number
	el.append(indent);
	if (isName) addTone(el, "name", key);
	el.append(isName ? colon : "");
	const rest = isName ? value : (key ?? "") + (colon ?? "") + value;
	if (/^[{}[\]]/.test(rest)) el.append(rest);
	else {
		const time = timeOf(key, rest), tone = addTone(el, rest.startsWith('"') ? "text" : "literal", rest);
		if (time) Object.assign(tone, { title: time, className: "literal time" });
	}
	el.append(comma);
	if (hidden) el.dataset.hidden = ` ${linesText(hidden)} `;
	el.append("\n");
	return el;
}
function addTone(el, className, textContent) {
	const tone = make("span", { className, textContent });
	el.append(tone);
	return tone;
}
// timeOf returns the date of a number whose name suggests a time in seconds or milliseconds since 1970; "" = it is none.
const timeName = /creat|updat|modif|time|date|start|end|expir|until|since|due|cancel|anchor|paid|(_at|At|^"(ts|iat|exp|nbf))"$/i;
function timeOf(key, value) {
	const n = /^(\d{10}|\d{13})$/.test(value) && timeName.test(key ?? "") ? Number(value) * (value.length === 10 ? 1000 : 1) : 0;
	return n > 1e12 && n < 4.1e12 ? `${new Date(n).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" })} (${new Date(n).toISOString().replace(".000", "")})` : "";
}

// jsonValue returns the value at a line: the text of a string, or JSON.
function jsonValue(json, i) {
	const end = json.ends.get(i), own = json.lines[i].replace(/^\s*(?:"(?:[^"\\]|\\.)*": )?/, "");
	if (end !== undefined) return [own, ...json.lines.slice(i + 1, end + 1)].join("\n").replace(/,$/, "");
	const value = own.replace(/,$/, "");
	try { return value.startsWith('"') ? JSON.parse(value) : value; } catch { return value; }
}

// jsonPath returns the path to a line as the filter json reads it: data.object.lines[0].id
function jsonPath(json, i) {
	const indentOf = n => /^\s*/.exec(json.lines[n])[0].length;
	let path = "";
	while (i > 0 && indentOf(i) > 0) {
		const indent = indentOf(i), key = /^\s*("(?:[^"\\]|\\.)*"): /.exec(json.lines[i]);
		let parent = i - 1, index = 0;
		for (; indentOf(parent) >= indent; parent--) if (indentOf(parent) === indent && !/^\s*[}\]]/.test(json.lines[parent])) index++;
		const name = key && JSON.parse(key[1]);
		path = (key ? (/^[\w-]+$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`) : `[${index}]`) + path;
		i = parent;
	}
	return path.replace(/^\./, "");
}

// Keys within a view: arrows move the focus and fold, c copies the value, p copies the path.
const jsonLine = el => { const line = el.closest(".ln"), pre = el.closest("pre.json"); return line && pre?.json && { line, json: pre.json, at: Number(line.dataset.line) }; };
function jsonKey(e) {
	const pre = e.target.closest("pre.json");
	if (!pre?.json) return false;
	const lines = $$(".ln", pre).filter(line => line.checkVisibility()), now = lines.indexOf(e.target.closest(".ln"));
	const found = jsonLine(e.target), fold = e.target.closest("summary")?.parentElement;
	const keys = {
		ArrowDown: () => lines[Math.min(now + 1, lines.length - 1)]?.focus(), ArrowUp: () => lines[Math.max(now - 1, 0)]?.focus(),
		ArrowRight: () => { if (fold) fold.open = true; }, ArrowLeft: () => { const at = fold?.open ? fold : e.target.closest("details:not(summary)"); if (at) { at.open = false; at.firstElementChild.focus(); } },
		c: () => found && copyText(jsonValue(found.json, found.at)), p: () => found && copyText(jsonPath(found.json, found.at)),
	};
	if (!Object.hasOwn(keys, e.key) || "cp".includes(e.key) && !found) return false;
	keys[e.key]();
	return true;
}

// For pointers, a small bar at the line under the pointer has the same actions, and a filter by the value.
const jsonBar = parse(`<span class="json-bar">${["value", "path", "filter"].map(name => `<button type="button" tabindex="-1" data-json="${name}">${name === "filter" ? "Filter" : `Copy ${name}`}</button>`).join("")}</span>`).firstElementChild;
jsonBar.onclick = e => {
	const { json, at } = jsonLine(jsonBar), path = jsonPath(json, at), value = jsonValue(json, at), act = e.target.dataset.json;
	e.preventDefault();
	if (act === "filter") location.assign(`${$("#event [rel=up]").pathname}?${new URLSearchParams({ json: `${path}=${value}` })}`);
	else if (act) copyText(act === "value" ? value : path);
};
document.addEventListener("pointerover", e => {
	const line = e.target.closest?.("pre.json .ln");
	if (!line) return e.target.closest?.("pre.json") || jsonBar.remove();
	if (jsonBar.parentElement === line) return;
	jsonBar.lastElementChild.hidden = jsonLine(line).json.ends.has(jsonLine(line).at) || !$("#event");
	line.append(jsonBar);
});
