package dashboard_test

import (
	"fmt"
	"testing"
)

// tabTo presses Tab until an element that matches sel has the focus, and returns the number of presses. The
// parameter most is the largest number of presses. The test fails if no such element has the focus after them,
// or if the focus is on a hidden element.
func (b *browser) tabTo(sel string, most int) int {
	b.t.Helper()
	for n := 1; n <= most; n++ {
		b.key("\t")
		if value[bool](b, `(e => !e.checkVisibility || !e.checkVisibility({visibilityProperty: true}))(document.activeElement)`) {
			b.t.Errorf("the focus is on something hidden: %s", value[string](b, `document.activeElement.outerHTML.slice(0, 120)`))
		}
		if value[bool](b, fmt.Sprintf(`document.activeElement.matches(%q)`, sel)) {
			return n
		}
	}
	b.t.Fatalf("%d tabs do not lead to %s; the focus is on %s", most, sel, value[string](b, `document.activeElement.outerHTML.slice(0, 120)`))
	return 0
}

// TestBrowserByKeyboardAlone goes from the list to an event and replays it with Tab and Enter. Live updates
// do not move the focus, new rows are not announced, and a replay is announced at most twice.
func TestBrowserByKeyboardAlone(t *testing.T) {
	r := newFixture(t)
	r.online()
	r.send(post("/first", "{}"))
	b := newBrowser(t, r)
	b.open("/aliases/hook")
	b.until(`document.querySelector("#link").textContent === "live"`)
	b.tabTo(".skip", 1)
	b.key("\r")
	stops := b.tabTo("#rows a", 14)
	value[any](b, `told.length = 0`)
	for i := range 40 {
		r.send(post(fmt.Sprintf("/more/%d", i), "{}"))
	}
	b.until(`document.querySelectorAll("#rows > li").length === 41`)
	b.until(`document.querySelector("#rows > li").dataset.state === "delivered"`)
	if !value[bool](b, `document.activeElement.matches("#rows a") && document.activeElement.textContent.includes("/first")`) {
		t.Error("new rows took the focus away")
	}
	if told := value[[]string](b, `told`); len(told) != 0 {
		t.Errorf("new rows are announced: %q", told)
	}
	r.offline()
	b.until(`document.querySelector("#alias").dataset.state === "offline"`)
	value[any](b, `document.querySelector("#alias [data-copy='#url']").focus()`)
	r.online()
	b.until(`document.querySelector("#alias").dataset.state === "online"`)
	if on := value[string](b, `document.activeElement.textContent`); on != "Copy address" {
		t.Errorf("an update of the panel moved the focus to %q", on)
	}
	value[any](b, `document.querySelector("#rows > li:last-child a").focus()`)
	b.follow()
	b.until(`document.activeElement.matches("#event h1")`) // the focus moves to the event that was opened
	stops += b.tabTo("#replay", 4)
	value[any](b, `told.length = 0`)
	b.key("\r")
	b.until(`document.querySelector('[data-attempt="2"][data-state="delivered"]')`)
	b.waitForAnnouncement("Replayed: ")
	if told := value[[]string](b, `told`); len(told) > 2 {
		t.Errorf("one replay is announced so often: %q", told)
	}
	if on := value[string](b, `document.activeElement.id`); on != "replay" {
		t.Errorf("after the replay the focus is on %q", on)
	}
	if live := value[string](b, `[...document.querySelectorAll("[aria-live=assertive], [role=alert]")].map(e => e.outerHTML.slice(0, 80)).join()`); live != "" {
		t.Errorf("it interrupts: %s", live)
	}
	t.Logf("%d stops by Tab from the page to the replay", stops)
}
