// Copying. Where a page may not write to the clipboard, a dialog shows the text.
"use strict";
async function copyText(text) {
	try {
		await navigator.clipboard.writeText(text);
		announce("Copied.");
	} catch { // without permission or https, the user copies the selected text
		$("#copy textarea").value = text;
		$("#copy").showModal();
		$("#copy textarea").select();
	}
}
async function copyFrom(url) {
	const response = await fetch(url), text = await response.text();
	if (response.ok) return copyText(text);
	const problem = text.startsWith("{") ? JSON.parse(text) : {}; // an error of the API is JSON, and its detail is the reason
	announce(problem.detail ? `Not copied: ${problem.detail}.` : `This could not be read (status ${response.status}).`, true);
}
const tableText = table => $$("tr", table).map(row => $$("code", row).map(cell => cell.textContent).join(": ")).join("\n");
// bodyText returns the shown text of a body, and also the folded lines of JSON.
const bodyText = body => $$("pre.content, table.pairs, .parts p.row", body).map(el => el.localName === "table" ? tableText(el) : el.jsonSource ?? el.textContent.trim().replace(/\s+/g, m => el.localName === "p" ? " " : m)).join("\n");
function copyBody(button) {
	if (button.dataset.copyBody) announce(button.dataset.copyBody, true); // the attribute has the reason why the body cannot be copied
	else copyText(bodyText(button.closest(".body")));
}
document.addEventListener("click", e => {
	const button = e.target.closest("[data-copy], [data-copy-from], [data-copy-table], [data-copy-body], [data-copy-of], [data-copy-link], [data-copy-text]");
	const value = !button && getSelection().isCollapsed && e.target.closest(".pairs td code, .pairs th code");
	if (value) copyText(value.closest("tr").querySelector("td code").textContent);
	if (!button) return;
	button.closest(".menu-box")?.hidePopover();
	if ("copyBody" in button.dataset) copyBody(button);
	else if (button.dataset.copyOf) { const body = $(`${button.dataset.copyOf} [data-copy-body]`); body ? copyBody(body) : announce("Not copied: there is no body.", true); }
	else if (button.dataset.copyLink) copyText(new URL(button.dataset.copyLink, location).href);
	else if (button.dataset.copyText) copyText(button.dataset.copyText);
	else if (button.dataset.copy) copyText($(button.dataset.copy).textContent);
	else if (button.dataset.copyTable) copyText(tableText($(button.dataset.copyTable)));
	else copyFrom(button.dataset.copyFrom);
});
