package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"relay"
)

// attempts returns the number of attempts of an event once none is in progress.
func (r *fixture) attempts(id relay.ID) (n int) {
	r.t.Helper()
	r.await("the end of the attempts", func() bool {
		e, err := r.s.Event(context.Background(), relay.System(), id, 0)
		must(r.t, err)
		n = e.AttemptCount
		return e.State != relay.StateDelivering
	})
	return n
}

// TestBrowserDoubleClick: double clicks, held keys and repeated presses replay an event once. A click on a
// page that shows the new attempt replays it again.
func TestBrowserDoubleClick(t *testing.T) {
	r := newFixture(t)
	r.online()
	b := newBrowser(t, r)
	const (
		clicks      = `for (const detail of [1, 2]) %s.dispatchEvent(new MouseEvent("click", { detail, bubbles: true, cancelable: true }))`
		pressed     = `%s; for (let i = 0; i < 2; i++) document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "r", bubbles: true }))`
		heldEnter   = `const b = %s; b.focus(); for (let i = 0; i < 5; i++) if (b.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", repeat: i > 0, bubbles: true, cancelable: true }))) b.click()`
		calls       = `{ const b = %s; b.click(); b.click(); }`
		afterAnswer = `{ const b = %s, n = document.querySelectorAll("[data-attempt]").length; b.dispatchEvent(new MouseEvent("click", { detail: 1, bubbles: true, cancelable: true }));
			const wait = setInterval(() => { if (document.querySelectorAll("[data-attempt]").length === n) return; clearInterval(wait);
			b.dispatchEvent(new MouseEvent("click", { detail: 2, bubbles: true, cancelable: true })); window.second = true; }, 5); }`
	)
	id := r.send(post("/one", `{}`))
	want := 1
	try := func(name, page, button, act string) {
		t.Helper()
		b.open(page)
		b.until(`document.querySelector("#link").textContent === "live"`)
		want++
		value[any](b, fmt.Sprintf(act+`; undefined`, button))
		b.until(fmt.Sprintf(`document.querySelector("#rows button[formaction]").getAttribute("formaction").endsWith("?once=%d")`, want))
		if act == afterAnswer {
			b.until(`window.second`)
		}
		b.until(`!document.querySelector("[aria-disabled]") && [...document.querySelectorAll("#replay, #rows button")].every(b => b.textContent === "Replay")`)
		value[any](b, `fetch("/account").then(() => window.asked = true); undefined`) // this request is answered after those of the clicks
		b.until(`window.asked`)
		if n := r.attempts(id); n != want {
			t.Errorf("%s: %d attempts, want %d", name, n, want)
			want = n
		}
	}
	inspector, row := `document.querySelector("#replay")`, `document.querySelector("#rows button[formaction]")`
	event := "/events/" + id.String()
	try("inspector, double click", event, inspector, clicks)
	try("inspector, a slow double click", event, inspector, afterAnswer)
	try("inspector, two clicks at once", event, inspector, calls)
	try("inspector, Enter held", event, inspector, heldEnter)
	try("inspector, r twice", event, inspector, pressed)
	try("row, double click", "/aliases/hook", row, clicks)
	try("row, two clicks at once", "/aliases/hook", row, calls)
	try("row beside the event, double click", event, row, clicks)

	// A click replays again once the page shows the previous attempt.
	b.open(event)
	b.until(`document.querySelector("#link").textContent === "live"`)
	for range 2 {
		want++
		b.click("#replay")
		b.until(fmt.Sprintf(`document.querySelector("#replay").form.elements.once.value === "%d"`, want))
	}
	if n := r.attempts(id); n != want {
		t.Errorf("%d attempts, want %d", n, want)
	}
}

// TestBrowserReplayIsShownAsRunning: while the request for a replay is held, the replay buttons are disabled
// and say that the replay runs.
func TestBrowserReplayIsShownAsRunning(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/one", `{}`)).String()
	b := newBrowser(t, r)
	b.open("/events/" + id)
	b.until(`document.querySelector("#link").textContent === "live"`)
	value[any](b, `const real = window.fetch; window.fetch = async (...a) => { if (a[1]?.method === "POST") await new Promise(go => { window.go = go; }); return real(...a); };
		document.querySelector("#replay").click()`)
	for _, sel := range []string{"#replay", "#rows button[formaction]"} {
		b.until(fmt.Sprintf(`document.querySelector(%q).textContent === "Replaying…" && document.querySelector(%q).getAttribute("aria-disabled") === "true"`, sel, sel))
	}
	value[any](b, `go(); undefined`)
	b.see(`[data-attempt="2"]`)
	b.until(`document.querySelector("#replay").textContent === "Replay" && !document.querySelector("[aria-disabled]")`)
}

// TestBrowserLoggedOutPage: an open page of an ended session stops requesting live updates. The next login
// leads back to that page.
func TestBrowserLoggedOutPage(t *testing.T) {
	r := newFixture(t)
	b := newBrowser(t, r)
	b.expect(http.StatusUnauthorized)
	b.open("/aliases/hook?status=5xx")
	b.until(`document.querySelector("#link").textContent === "live"`)
	value[any](b, `window.asked = 0; const real = EventSource; window.EventSource = class extends real { constructor(url) { super(url); window.asked++; } }; undefined`)
	must(t, r.s.EndSession(t.Context(), r.session))
	b.until(`document.querySelector("#link").textContent === "logged out, log in"`)
	if asked := value[int](b, `asked`); asked > 1 { // the browser itself tries once more
		t.Errorf("the page has asked %d times", asked)
	}
	b.click("#link a")
	b.until(`location.pathname === "/aliases/hook" && document.body.innerText.includes("ssh ")`)
	link, err := r.s.CreateLoginLink(t.Context(), relay.System(), "alice", patience)
	must(t, err)
	b.open("/login/" + link)
	b.click("form button")
	b.until(`location.pathname === "/aliases/hook" && location.search === "?status=5xx" && document.querySelector("#rows")`)
}
