package dashboard_test

import (
	"fmt"
	"testing"

	"relay"
)

// TestBrowserKeys presses the keyboard shortcuts of the page, and checks their effect. The shortcuts have no
// effect in a field, and none while a dialog is open.
func TestBrowserKeys(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.send(post("/first", "{}"))
	second := r.send(post("/second", "{}")).String()
	b := newBrowser(t, r)
	b.open("/aliases/hook")
	b.until(`document.querySelector("#link").textContent === "live"`)
	focus := func(text string) {
		t.Helper()
		b.until(fmt.Sprintf(`document.activeElement.localName === "a" && document.activeElement.textContent.includes(%q)`, text))
	}
	shows := func(path string) {
		t.Helper()
		b.until(fmt.Sprintf(`document.querySelector("#event h1")?.textContent.includes(%q) && document.querySelector('#rows [aria-current]')?.textContent.includes(%q)`, path, path))
	}
	b.key("j")
	focus("/second")
	shows("/second")
	b.key("j")
	focus("/first")
	shows("/first")
	b.key("j")
	focus("/first")
	b.key("k")
	focus("/second")
	shows("/second")
	// The page replays an event three seconds after the key, so that Escape can stop it. One script
	// presses both keys, because a slow machine could let the three seconds pass.
	value[any](b, `(press => { press("r"); setTimeout(press, 200, "Escape"); })(key => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true})))`)
	b.waitForAnnouncement("Esc cancels")
	b.waitForAnnouncement("Not replayed.")
	b.key("r")
	b.until(fmt.Sprintf(`document.querySelector("#%s").textContent.includes("↻1")`, second))
	// The replay has replaced the row of the event. The focus is on the new row.
	focus("/second")
	b.key("c")
	b.until(`told.includes("Copied.") || document.querySelector("dialog[open] textarea")?.value.includes("curl ")`)
	value[any](b, `document.querySelector("dialog[open]")?.close()`)
	b.key("f")
	b.until(`!document.querySelector("#follow").checked`)
	b.key("f")
	b.until(`document.querySelector("#follow").checked`)

	b.key("/")
	b.until(`document.activeElement.id === "search" `)
	b.write("#search", "jkrdcsfx/?ga")
	b.until(`document.querySelector("#search").value.endsWith("jkrdcsfx/?ga")`) // the driver of the test inserts / into the field even if the page prevents that
	if value[bool](b, `document.querySelector("#keys").open || location.pathname !== "/events/`+second+`"`) {
		t.Error("a key did something while somebody typed")
	}
	value[any](b, `document.activeElement.blur()`)
	b.key("?")
	b.until(`document.querySelector("#keys").open`)
	// The key has no effect while a dialog is open.
	b.key("r")
	b.click("#keys button")
	b.until(`!document.querySelector("#keys").open`)
	if n := value[string](b, fmt.Sprintf(`document.querySelector("#%s .replays").textContent.trim()`, second)); n != "↻1" {
		t.Errorf("replays: %q", n)
	}

	// The key k works, wherever the focus is now that the dialog is closed.
	b.key("k")
	b.key("k")
	focus("/second")
	b.key("\r")
	b.until(`document.activeElement.matches("#event h1") && document.querySelectorAll("[data-attempt]").length === 2`)
	b.until(`document.querySelector("#diff")`)
	b.key("\x1b")
	focus("/second")
	// The key d compares the open event with the one below it in the list.
	b.key("d")
	b.until(`location.pathname === "/diff" && document.querySelector("#diff")?.textContent.includes("different method or path")`)
	b.open("/events/" + second)
	b.until(`document.querySelector("#link").textContent === "live"`)
	b.key("p")
	b.waitForAnnouncement("Pinned: retention keeps this event.")
	b.until(`document.querySelector("#pin").textContent === "Unpin" && document.querySelector("#rows [aria-label=pinned]")`)
	b.key("s")
	b.until(`document.activeElement.id === "share"`)
	value[any](b, `document.activeElement.blur()`)
	r.offline()
	b.until(`document.querySelector("#reconnect")`)
	b.key("r")
	b.until(`document.querySelector('[data-attempt="3"][data-state="queued"]')`)
	b.waitForAnnouncement("position 1")
	b.key("x")
	b.until(`document.querySelector('[data-attempt="3"][data-state="canceled"]')`)
	value[any](b, `told.length = 0`)
	// The key x cancels queued attempts. There are none, and the page announces that.
	b.key("x")
	b.until(`told.some(text => /nothing|no attempt|waits/i.test(text))`)
	b.write("#mark summary", " ")
	b.write("#mark-label", "bug-17\r")
	b.until(`document.querySelector(".marks .label")?.textContent === "bug-17"`)
	b.key("\x1b")
	b.write("[popovertarget=more]", "\r")
	b.see("#delete")
	b.write("#delete", "\r")
	b.until(`location.pathname.endsWith("/delete") && document.readyState === "complete"`)
	b.write("main form button", "\r")
	b.until(`location.pathname === "/aliases/hook" && document.querySelectorAll("#rows > li").length === 1`)
	b.until(`document.querySelector("#link").textContent === "live"`)
	b.until(`["g", "a"].every(key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true})))`)
	b.until(`location.pathname === "/"`)
}

// stopClock stops the clock of the page, and gives the event that was read ahead the time of the stop. The page reads an
// event again that was read ahead more than five seconds before, and a busy machine may need that long for a step of a
// test.
func (b *browser) stopClock() {
	b.t.Helper()
	value[any](b, `(now => { Date.now = () => now; ahead.at = now; })(Date.now())`)
}

// TestBrowserReadsTheNextEventAhead: the page reads the next event before the user opens it with a key, and
// then needs no other request. The event is shown with an attempt that was made after it was read, and with the
// same folds open as in the event shown before. A copy that is too old is read again.
func TestBrowserReadsTheNextEventAhead(t *testing.T) {
	r := newFixture(t)
	r.online()
	third, second, first := r.send(post("/third", "{}")).String(), r.send(post("/second", "{}")).String(), r.send(post("/first", "{}")).String()
	b := newBrowser(t, r)
	b.look("light", 1440, 900)
	b.open("/events/" + first)
	isAhead := func(id string) string {
		return `ahead.content?.querySelector("#event").dataset.eventId === "` + id + `"`
	}
	shown := func(id string) string { return `currentID() === "` + id + `"` }
	asked := func(id string) int {
		return value[int](b, `asked.filter(url => url.includes("`+id+`")).length`)
	}
	b.until(isAhead(second))
	b.stopClock()
	value[any](b, `window.permissions = 0; Object.defineProperty(Notification, "permission", { get: () => { permissions++; return "default"; } }), 0`)
	value[any](b, `window.asked = []; window.realFetch = fetch; window.fetch = (url, init) => { asked.push(String(url)); return realFetch(url, init); }`)
	b.key("]")
	b.until(shown(second))
	b.until(isAhead(third))
	if n := asked(second); n != 0 {
		t.Errorf("the event was read again, %d times", n)
	}
	r.replay(third)
	b.until(isAhead(third) + ` && ahead.content.querySelector("[data-attempt='2']:not([data-state='delivering'])")`)
	b.click("#request-part .fields-fold > summary")
	b.until(`Object.values(folds).includes(true)`)
	before := asked(third)
	b.key("]")
	b.until(shown(third))
	if !value[bool](b, `!!document.querySelector("[data-attempt='2']")`) {
		t.Error("the event is shown as it was before its replay")
	}
	if !value[bool](b, `document.querySelector("#request-part .fields-fold").open`) {
		t.Error("a fold is not as the page was left")
	}
	if n := asked(third); n != before {
		t.Errorf("the event was read again, %d times", n-before)
	}
	b.key("[")
	b.until(shown(second) + ` && ` + isAhead(first))
	value[any](b, `ahead.at = 0; asked.length = 0`)
	b.key("[")
	b.until(shown(first) + ` && asked.some(url => url.includes("` + first + `"))`)
	b.until(`!shownAhead`)
	if n := value[int](b, `permissions`); n != 0 { // the page must not read the permission here: that takes up to 8 ms, because Chromium asks another process
		t.Errorf("the permission to notify was read %d times, though nobody wants notifications", n)
	}
}

// TestBrowserForgetsWhatItReadAhead: an event that was read ahead is read again after the live connection was
// lost, and nothing is read ahead without that connection. If the user opens another event, the read is
// canceled; if the user opens the event that is being read, the read continues. A deleted event is not shown
// from a copy.
func TestBrowserForgetsWhatItReadAhead(t *testing.T) {
	r := newFixture(t)
	r.online()
	fourth, third := r.send(post("/fourth", "{}")), r.send(post("/third", "{}")).String()
	second, first := r.send(post("/second", "{}")).String(), r.send(post("/first", "{}")).String()
	b := newBrowser(t, r)
	b.expect(404)
	b.look("light", 1440, 900)
	b.open("/events/" + first)
	shown := func(id string) string { return `currentID() === "` + id + `"` }
	isAhead := func(id string) string { return `ahead.content && ahead.href.includes("` + id + `")` }
	b.until(isAhead(second))
	b.stopClock()
	if got := value[string](b, `(source.dispatchEvent(new Event("error")), ahead.href)`); got != "" {
		t.Errorf("the live connection broke, and %s is kept", got)
	}
	value[any](b, `source.onopen(), 0`)
	b.until(isAhead(second))
	value[any](b, `source.close()`)
	r.replay(second)
	value[any](b, `window.asked = []; window.realFetch = fetch; window.release = Promise.resolve();
		window.fetch = async (url, init) => { asked.push(String(url)); await release; return realFetch(url, init); };
		connect(); (open => source.onopen = () => { open(); openNext("#older-event"); })(source.onopen)`)
	b.until(shown(second) + ` && document.querySelector("#` + second + ` .replays") && document.querySelectorAll("#event [data-attempt]").length === 2`)
	if told := value[[]string](b, `told`); len(told) != 0 {
		t.Errorf("the event was shown as it was before its replay: %q", told)
	}

	value[any](b, `source.close(); openPage(new URL("/events/`+first+`", location))`)
	b.until(shown(first))
	value[any](b, `asked.length = 0, setTimeout(() => window.rested = true, 3 * restBeforeAhead)`)
	b.until(`window.rested`)
	if asked := value[[]string](b, `asked`); len(asked) != 0 {
		t.Errorf("without a live connection %q is read", asked)
	}

	value[any](b, `release = new Promise(then => window.letGo = then); connect()`)
	b.until(`ahead.href.includes("` + second + `")`)
	value[any](b, `window.unneeded = ahead.stop.signal; openPage(new URL("/events/`+second+`?find=", location)), 0`)
	if !value[bool](b, `unneeded.aborted`) {
		t.Error("a read ahead goes on though nobody needs it")
	}
	value[any](b, `letGo(); release = Promise.resolve()`)
	b.until(shown(second) + ` && ` + isAhead(third))

	value[any](b, `release = new Promise(then => window.letGo = then); asked.length = 0; forgetAhead(); readAhead()`)
	b.until(`asked.length === 1`)
	b.key("]")
	value[any](b, `letGo(); release = Promise.resolve()`)
	b.until(shown(third) + ` && ` + isAhead(fourth.String()))
	if n := value[int](b, `asked.filter(url => url.includes("`+third+`")).length`); n != 1 {
		t.Errorf("an event that was being read ahead was read %d times", n)
	}

	must(t, r.s.DeleteEvent(t.Context(), relay.System(), fourth))
	// The copy is from the future, as if the clock had been set back.
	value[any](b, `ahead.at = Date.now() + 3600e3, 0`)
	b.key("]")
	b.until(`location.pathname === "/events/` + fourth.String() + `" && document.title.includes("Not found") && !document.querySelector("#event")`)
}
