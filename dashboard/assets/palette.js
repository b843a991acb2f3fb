// The palette: one field for the actions of the page, aliases and events. It offers links and buttons of the page, and links that the server finds.
"use strict";
const palette = $("#palette"), paletteText = $("#palette-text"), paletteMost = 12;
let offers = [], paletteTimer = 0;
const nameOf = el => (el.ariaLabel || $(".name", el)?.textContent || el.firstChild?.textContent || "").trim().replace(/…$/, "");
// ownOffers returns what the page has: its buttons, the aliases in the sidebar, and the menu under the name of the user.
function ownOffers() {
	const inPage = $$("#main :is(button, a.button)").filter(el => el.checkVisibility() && !el.closest("#rows, pre, .tabs, .chips, table, .command"));
	return [...inPage.map(el => ["action", el]), ...$$("#side a").map(el => ["alias", el]), ...$$("#me :is(a, button)").map(el => [["theme", "rows"].includes(el.name) ? el.name : "page", el])]
		.map(([kind, el]) => ({ kind, name: nameOf(el), go: () => el.click() }));
}
function showOffers(found = []) {
	const words = paletteText.value.trim().toLowerCase(), seen = new Set();
	offers = [...ownOffers(), ...found].filter(({ kind, name }) => {
		const key = `${kind} ${name}`, fits = name && key.toLowerCase().includes(words) && !seen.has(key);
		seen.add(key);
		return fits;
	}).slice(0, paletteMost);
	if (words && $("#list [role=search]")) offers.push({ kind: "search", name: `Find “${paletteText.value.trim()}” in ${$("#list .name").textContent}`, go: () => openPage(new URL(`?${new URLSearchParams({ find: wordsInUTC(paletteText.value.trim()) })}`, $("#list [role=search]").action)) });
	$("#palette-list").replaceChildren(...offers.map(({ kind, name }, i) => {
		const item = make("li", { id: `offer-${i}`, role: "option" });
		item.append(make("span", { textContent: name }), make("span", { className: "dim", textContent: kind }));
		return item;
	}));
	select(0);
}
function select(at) {
	const items = $$("#palette-list li"), now = (at + items.length) % items.length;
	items.forEach((item, i) => item.setAttribute("aria-selected", i === now));
	items[now]?.scrollIntoView({ block: "nearest" });
	paletteText.setAttribute("aria-activedescendant", items[now]?.id ?? "");
}
const selected = () => $$("#palette-list li").findIndex(item => item.ariaSelected === "true");
function choose(at) {
	palette.close();
	offers[at]?.go();
}
// findMore asks the server for aliases that are not in the sidebar, event types, and an event by its id.
async function findMore() {
	const text = paletteText.value.trim(), content = text && await ask(palette.dataset.find + encodeURIComponent(text), "palette-found", {}, true);
	if (content && text === paletteText.value.trim() && palette.open) showOffers($$("a", content).map(a => ({ kind: a.dataset.kind, name: a.textContent, go: () => location.assign(a.getAttribute("href")) })));
}
function showPalette() {
	palette.showModal();
	paletteText.value = "";
	showOffers();
}
if (palette) {
	Object.assign(paletteText, { role: "combobox", ariaExpanded: "true", ariaAutoComplete: "list" });
	paletteText.setAttribute("aria-controls", "palette-list");
	paletteText.addEventListener("input", () => {
		showOffers();
		clearTimeout(paletteTimer);
		paletteTimer = setTimeout(findMore, 120);
	});
	palette.addEventListener("keydown", e => {
		const act = { ArrowDown: () => select(selected() + 1), ArrowUp: () => select(selected() - 1), Enter: () => choose(selected()), Escape: () => palette.close() }[e.key];
		if (!act) return;
		e.preventDefault();
		act();
	});
	palette.addEventListener("click", e => {
		if (e.target === palette) palette.close(); // a click outside of the box has the dialog itself as its target
		const item = e.target.closest("li");
		if (item) choose($$("#palette-list li").indexOf(item));
	});
	$("#show-palette").addEventListener("click", e => { e.preventDefault(); showPalette(); });
	document.addEventListener("keydown", e => {
		if (e.key.toLowerCase() !== "k" || !(e.ctrlKey || e.metaKey) || e.altKey || e.shiftKey) return;
		e.preventDefault();
		if (palette.open) palette.close();
		else if (!$("dialog[open]")) showPalette();
	});
}
