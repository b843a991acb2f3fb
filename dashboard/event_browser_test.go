package dashboard_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestBrowserJSONIsReadable: escapes are shown as characters, the envelope of Stripe and the repository of
// GitHub are folded, and a number that is a time has its date beside it. Copy includes folded members.
func TestBrowserJSONIsReadable(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/stripe", `{"id":"evt_1","object":"event","type":"invoice.paid","data":{"object":{"created":1795860230,"amount":1795860230,"text":"1 \u00d7 Pro (\u20ac16.50)"}},"pending_webhooks":1,"request":null}`,
		"Content-Type: application/json", "Stripe-Signature: t=1,v1=x")).String()
	hub := r.send(post("/github", `{"action":"opened","repository":{"id":1,"full_name":"ana/shop"},"number":2}`, "Content-Type: application/json", "X-GitHub-Event: issues", "X-GitHub-Delivery: 1")).String()
	b := newBrowser(t, r)
	b.open("/events/" + id)
	shown := func() string { return value[string](b, `document.querySelector("#request pre").innerText`) }
	b.until(`document.querySelector("#request pre .ln")`)
	if text := shown(); !strings.Contains(text, `"1 × Pro (€16.50)"`) || strings.Contains(text, "pending_webhooks") || strings.Contains(text, "evt_1") {
		t.Error(text)
	}
	if got := value[[]string](b, `[...document.querySelectorAll("#request .time")].map(e => e.textContent + " " + e.title)`); len(got) != 1 || !strings.HasSuffix(got[0], "(2026-11-28T10:03:50Z)") {
		t.Errorf("times: %q", got)
	}
	value[any](b, `document.querySelector("#request .group").click()`)
	b.until(`document.querySelector("#request pre").innerText.includes('"id": "evt_1"')`)
	if got := value[string](b, `bodyText(document.querySelector("#request"))`); !strings.Contains(got, "1 × Pro") || !strings.Contains(got, "pending_webhooks") {
		t.Errorf("copied: %s", got)
	}
	if raw := r.get("/events/"+id+"?body=raw", 200); !strings.Contains(raw, `\u00d7`) {
		t.Error("raw does not show the bytes")
	}
	b.open("/events/" + hub)
	b.until(`document.querySelector("#request pre .ln")`)
	if text := shown(); !strings.Contains(text, `"repository": {`) || strings.Contains(text, "ana/shop") || !strings.Contains(text, `"number": 2`) {
		t.Error(text)
	}
}

// TestBrowserAttemptsAreATimeline: the newest attempt comes first, an attempt can be opened and compared with
// another one, and an attempt shows its phases.
func TestBrowserAttemptsAreATimeline(t *testing.T) {
	r := newFixture(t)
	r.online()
	n := 0
	r.answers(func([]byte, []byte) string {
		n++
		body := fmt.Sprintf(`{"n":%d}`, n)
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	id := r.send(post("/a", `{}`)).String()
	for range 3 {
		r.replay(id)
	}
	b := newBrowser(t, r)
	b.open("/events/" + id)
	titles := value[[]string](b, `[...document.querySelectorAll(".strip .who")].map(e => e.textContent.trim().replace(/\s+/g, " "))`)
	if strings.Join(titles, "|") != "Attempt 4 (replay) by user:alice|Attempt 3 (replay) by user:alice|Attempt 2 (replay) by user:alice|Attempt 1 (original)" {
		t.Errorf("%q", titles)
	}
	b.click(`.strip [data-attempt="3"] a`)
	b.until(`document.querySelector("#diff")?.textContent.includes("Attempt 1 and 3")`)
	value[any](b, `document.querySelector("#attempts select[name=diff]").value = "2"`)
	b.click("#attempts form button")
	b.until(`document.readyState === "complete" && document.querySelector("#diff")?.textContent.includes("Attempt 2 and 3")`)
	if got := value[string](b, `[...document.querySelectorAll(".attempt .phases")].map(e => e.textContent + e.title).join()`); !strings.Contains(got, "total ") || !strings.Contains(got, "blocked ") {
		t.Errorf("phases: %s", got)
	}
}

// TestBrowserSharesInTheHead: the top of an event's page has at most four actions beside the main one, a menu
// whose items copy something, and a box to share the event. A reload creates no second share.
func TestBrowserSharesInTheHead(t *testing.T) {
	r := newFixture(t)
	r.online()
	id := r.send(post("/a", `{"a":1}`)).String()
	b := newBrowser(t, r)
	b.open("/events/" + id)
	if n := value[int](b, `[...document.querySelectorAll(".actions button, .actions a.button")].filter(e => e.checkVisibility() && !e.matches(".main")).length`); n > 4 {
		t.Errorf("%d actions stand beside the main one, want at most 4", n)
	}
	b.click("[popovertarget=copy-menu]")
	b.click("[data-copy-link]")
	b.until(`(told.includes("Copied.") || document.querySelector("dialog[open] textarea")) && !document.querySelector(":popover-open")`)
	value[any](b, `document.querySelector("dialog[open]")?.close()`)
	b.click("[popovertarget=share-box]")
	b.click("#share")
	b.click("#create-share")
	b.see("#share-url")
	if y := value[float64](b, `document.querySelector("#share-url").getBoundingClientRect().top`); y > 400 {
		t.Errorf("the new link is at %.0f", y)
	}
	b.until(`document.querySelector("[popovertarget=share-box]").textContent.includes("Share (1)")`)
	// A reload creates no second share.
	for range 2 {
		value[any](b, `window.before = true; setTimeout(() => location.reload()); null`)
		b.until(`!window.before && document.readyState === "complete" && document.querySelector("[popovertarget=share-box]")?.textContent.includes("Share (1)")`)
	}
}
