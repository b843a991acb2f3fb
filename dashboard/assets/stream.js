// The live connection of a page: its updates, the reason why it ended, and the number of new events that nobody has seen.
"use strict";
let lastID = "", connection = "", source, connectedTo = "";

// After each change of regions, showChanges announces the end of an attempt and arranges the page. latestAttempt describes the newest attempt of the open event.
const latestAttempt = () => $$("#event [data-attempt]").sort((a, b) => a.dataset.attempt - b.dataset.attempt).slice(-1).map(a => {
	const { attempt, state } = a.dataset, text = sel => $(sel, a)?.textContent.trim() ?? "";
	const says = state === "delivered" ? `${attempt > 1 ? "Replayed" : "Delivered"}: ${text(".pill")} in ${text(".took")}` : `Attempt ${attempt}: ${[...new Set([state, text(".pill"), text(".place")])].join(" ").trim()}`;
	return `${attempt}|${says}`; // the number distinguishes two replays with the same result
}).join();
let announced = ["", ""]; // the id of the open event, and its latest attempt
function showChanges() {
	const id = currentID(), attempt = latestAttempt();
	if (id && id === announced[0] && attempt !== announced[1] && !attempt.includes(": delivering")) announce(attempt.split("|")[1]); // the start of an attempt was announced by the answer to the form
	const newest = parseInt(attempt) && document.getElementById(`attempt-${parseInt(attempt)}`);
	if (newest && id === announced[0] && parseInt(attempt) > parseInt(announced[1])) { // a new attempt is animated and scrolled into view
		newest.dataset.new = "1";
		newest.scrollIntoView({ block: "nearest", inline: "nearest" });
	}
	announced = [id, attempt];
	if ($("#detail")) $("#main").classList.toggle("overview", !id);
	arrangeRows();
	showSending();
	showTitle();
	showConnection();
	showNotices();
	if (source && liveAddress().pathname + filterOf(liveAddress()) !== connectedTo) connect("");
}

// The title has the number of events that came while the page was hidden.
let pageTitle = document.title, unseen = 0;
function showTitle() { document.title = unseen ? `(${unseen}) ${pageTitle}` : pageTitle; }
function countUnseen(html) {
	unseen++;
	showTitle();
	notify(html);
}

// Browser notifications, if the user asked for them.
let notifiedAt = 0;
const wantsNotices = () => "Notification" in window && stored("notify", false) && Notification.permission === "granted"; // the permission is read last, because that takes some ms
function notify(html) {
	if (!wantsNotices() || Date.now() - notifiedAt < 3000) return;
	notifiedAt = Date.now();
	const row = parse(html).firstElementChild, notice = new Notification($(".what", row).textContent, { body: `${$(".pill", row).textContent} · ${$("#list .name").textContent}`, tag: "relay", icon: "/assets/icon.svg" });
	notice.onclick = () => { window.focus(); openPage(new URL($("a", row).getAttribute("href"), location.href)); notice.close(); };
}
async function toggleNotices() {
	const want = !wantsNotices();
	if (want && await Notification.requestPermission() !== "granted") return announce("The browser does not allow notifications for this site.", true);
	store("notify", want);
	showNotices();
	if (want) watch("relay-notify-1", "relay-notify-2");
	announce(want ? "New events are notified while this page is hidden." : "Notifications are off.");
}
function showNotices() {
	const button = $("#notify");
	if (!button) return;
	button.hidden = !("Notification" in window);
	button.setAttribute("aria-pressed", wantsNotices());
}
document.addEventListener("click", e => { if (e.target.id === "notify") toggleNotices(); });

// The receivers of live updates, by the names in alias/live.go.
const receivers = {
	row: data => receiveRow("row", data), update: data => receiveRow("update", data),
	region: data => receiveRegion(parse(data).firstElementChild),
	reread,
	resync: () => { listIsStale = true; forgetAhead(); reread("detail"); schedule(); },
};
function receiveRegion(fresh) {
	const { alias, state } = fresh.dataset, isOther = event => event && event.dataset.alias === alias && (event.dataset.state === "queued" || event.dataset.tunnel !== state);
	if (document.getElementById(fresh.id) || fresh.dataset.into) put(fresh);
	if (!ahead.content || isOther($("#event", ahead.content))) forgetAhead();
	if (isOther($("#event"))) reread("event");
}
// refusalOf asks for the status with which a live connection was refused, because an EventSource does not report it; "" = not refused.
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
	else if (!$("a", link)) link.replaceChildren(`${text}, `, make("a", { href: hereAddress(), textContent: "log in" }));
	link.dataset.is = text;
}
const liveAddress = () => new URL($("[data-live]").dataset.live, location.href);
const filterOf = url => { const q = new URLSearchParams(url.search); q.delete("after"); return `?${q}`; };
// connect asks for the updates after the item with an id; "" = after the list of the page was read.
function connect(after = lastID) {
	source?.close();
	forgetAhead();
	lastID = after;
	if (!mayConnect() || !$("#sidebar")) return;
	const url = liveAddress();
	connectedTo = url.pathname + filterOf(url);
	if (lastID) url.searchParams.set("after", lastID);
	source = new EventSource(url);
	source.onopen = () => { showConnection("live"); readAhead(); };
	source.onerror = async e => {
		forgetAhead(); // the copy may change without a report
		if (e.target.readyState !== EventSource.CLOSED) return showConnection("reconnecting…"); // the browser reconnects by itself
		const reason = await refusalOf(url);
		if (source !== e.target) return;
		showConnection(reason && reason !== loggedOut ? `${reason}, trying again…` : reason || "reconnecting…");
		if (reason !== loggedOut) setTimeout(() => { if (source === e.target) connect(); }, retryAfter);
	};
	for (const [name, receive] of Object.entries(receivers)) source.addEventListener(name, e => { lastID = e.lastEventId || lastID; receive(e.data); });
}
// Of the pages in hidden tabs, the oldest one stays connected, for the count in its title, and so do those that notify. With HTTP/1.1 a browser has only six
// connections to a host: then at most three hidden pages stay connected, and the others are updated when the user looks at them.
const isLimited = !/^h[23]/.test(performance.getEntriesByType("navigation")[0]?.nextHopProtocol);
const mayConnect = () => !document.hidden || isWatching || !isLimited && wantsNotices();
let isWatching = false;
function watch(...names) {
	const others = new AbortController();
	for (const name of names) navigator.locks?.request(name, { signal: others.signal }, () => {
		if (isWatching) return undefined; // another lock was granted first
		isWatching = true;
		others.abort();
		if (document.hidden) connect();
		return new Promise(() => {}); // the lock is kept until the page is closed
	}).catch(() => {}); // the page already has a lock
}
watch("relay-watch", ...wantsNotices() ? ["relay-notify-1", "relay-notify-2"] : []);
document.addEventListener("visibilitychange", () => {
	unseen = 0;
	showTitle();
	if (!isLive() || !mayConnect()) connect();
});

decorate(document);
announced = [currentID(), latestAttempt()];
arrangeRows();
showNotices();
$("#sidebar [aria-current=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
if (isWide.matches && currentID()) document.getElementById(currentID())?.scrollIntoView({ block: "nearest" });
connect();
