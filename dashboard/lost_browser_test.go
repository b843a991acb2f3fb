package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"relay"
)

// TestBrowserNewShareStays: the link of a new share stays on the page when its event gets a new attempt.
func TestBrowserNewShareStays(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/one", `{}`)).String()
	b := newBrowser(t, r)
	b.open("/events/" + id + "/share?expires=7d")
	b.click("#create-share")
	b.see("#share-url")
	b.until(`document.querySelector("#link")?.textContent === "live"`)
	link := value[string](b, `document.querySelector("#share-url").textContent`)
	r.do(http.MethodPost, "/events/"+id+"/replay", url.Values{}, nil, http.StatusOK)
	b.until(`document.querySelectorAll("section.attempt").length === 2`)
	if got := value[string](b, `document.querySelector("#share-url")?.textContent ?? "gone"`); got != link {
		t.Errorf("the link is %q, was %q", got, link)
	}
}

// TestBrowserSkipLinkStaysOnThePage: on a page that is the answer to a form, the skip link moves within the
// page and loads nothing.
func TestBrowserSkipLinkStaysOnThePage(t *testing.T) {
	r := newFixture(t)
	b := newBrowser(t, r)
	b.open("/account")
	value[any](b, `document.querySelector("form[action='/account/tokens']").requestSubmit()`)
	b.see("#secret")
	value[any](b, `window.rounds = 0; addEventListener("popstate", () => rounds++); document.querySelector(".skip").click()`)
	b.until(`location.hash === "#main"`)
	time.Sleep(500 * time.Millisecond)
	if rounds := value[int](b, `rounds`); rounds > 1 || !value[bool](b, `Boolean(document.querySelector("#secret"))`) {
		t.Errorf("%d rounds", rounds)
	}
}

// TestBrowserHeldKeyReplaysOnce: repeated keydown events of a held key r replay an event once.
func TestBrowserHeldKeyReplaysOnce(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/one", `{}`))
	b := newBrowser(t, r)
	b.open("/events/" + id.String())
	b.until(`document.querySelector("#link").textContent === "live"`)
	value[any](b, `for (let i = 0; i < 20; i++) document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "r", bubbles: true, repeat: i > 0 }))`)
	b.until(fmt.Sprintf(`document.querySelector("#%s .replays")?.textContent.includes("1")`, id))
	time.Sleep(500 * time.Millisecond)
	if e, err := r.s.Event(t.Context(), relay.System(), id, 0); err != nil || e.AttemptCount != 2 {
		t.Errorf("%d attempts, %v", e.AttemptCount, err)
	}
}

// TestBrowserNoteIsKept: saving only a label leaves a note with joined emoji unchanged.
func TestBrowserNoteIsKept(t *testing.T) {
	r := newFixture(t)
	id := r.send(post("/one", `{}`))
	const note = "done \u2764\ufe0f \U0001F469\u200d\U0001F4BB"
	r.do(http.MethodPost, "/events/"+id.String()+"/mark", url.Values{"label": {"x"}, "note": {note}}, nil, http.StatusOK)
	b := newBrowser(t, r)
	b.open("/events/" + id.String())
	b.until(`document.querySelector("#link").textContent === "live"`)
	value[any](b, `document.querySelector("#mark").open = true`)
	b.write("#mark-label", "y\r")
	b.until(`document.querySelector("#mark-label")?.getAttribute("value") .includes("y")`)
	if e, err := r.s.Event(t.Context(), relay.System(), id, 0); err != nil || e.Mark.Note != note || len(e.Mark.Label) != 2 {
		t.Errorf("the mark is %+v, %v", e.Mark, err)
	}
}
