package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"relay"
)

// TestReplaySeveral: the list has checkboxes only on request. After the user has confirmed the replay on a
// page, the ticked events are replayed, the oldest first. A replay of more than fifty events, or of an event of
// another alias, is refused.
func TestReplaySeveral(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	one, two := r.send(post("/one", "{}")).String(), r.send(post("/two", "{}")).String()
	other := r.send(post("/three", "{}")).String()
	if page := r.get("/aliases/hook", 200); strings.Contains(page, `name="id"`) {
		t.Error("boxes are shown before they are asked for")
	}
	contains(t, "list", r.get("/aliases/hook?tick=1&method=POST", 200), `name="id" value="`+one+`"`, "Replay selected", "/events/"+one+"?method=POST&amp;tick=1")
	question := r.get("/aliases/hook/replay?id="+two+"&id="+one+"&id="+two, 200)
	contains(t, "question", question, "Replay 2 events of hook?", "This runs your code", "POST /one")
	if strings.Index(question, "POST /one") > strings.Index(question, "POST /two") {
		t.Error("the oldest is not first")
	}
	contains(t, "afterwards", r.submit("/aliases/hook/replay", url.Values{"id": {one, two}}, 200), "2 events are being replayed")
	for _, id := range []string{one, two} {
		r.await("a second attempt of "+id, func() bool { return strings.Contains(r.get("/events/"+id, 200), `data-attempt="2"`) })
	}
	if strings.Contains(r.get("/events/"+other, 200), `data-attempt="2"`) {
		t.Error("an event that was not ticked was replayed")
	}
	many := url.Values{}
	for range 51 {
		many.Add("id", r.send(post("/n", "{}")).String())
	}
	contains(t, "too many", r.submit("/aliases/hook/replay", many, 422), "at most 50")
	r.submit("/aliases/hook/replay", url.Values{"id": {"evt_x"}}, 404)
	_, err := r.s.CreateAlias(t.Context(), relay.System(), "spare", "alice")
	must(t, err)
	// This is an event of another alias.
	r.submit("/aliases/spare/replay", url.Values{"id": {one}}, 404)
}

// TestSendSample: the page of an alias without events has a button that sends a test event. The event is queued
// while the alias is offline, and delivered while it is online.
func TestSendSample(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	contains(t, "empty alias", r.get("/aliases/hook", 200), `formaction="/aliases/hook/test"`, "Send a test event")
	contains(t, "offline", r.submit("/aliases/hook/test", nil, 200), "/relay-test", `data-state="queued"`)
	r.online()
	var got string
	r.answers(func(head, body []byte) string {
		got = string(head) + string(body)
		return ok
	})
	part := r.do("POST", "/aliases/hook/test", nil, http.Header{"X-Regions": {"detail"}}, 200)
	contains(t, "answer", part, "A test event was sent.")
	r.mu.Lock()
	defer r.mu.Unlock()
	contains(t, "request", got, "POST /relay-test HTTP/1.1\r\nHost: hook.localhost", `"type":"relay.test"`, `"sentBy":"alice"`)
	r.submit("/aliases/other/test", nil, 404)
}

// TestQRCode: the QR code of an alias is an SVG image; for an alias that does not exist, the answer is 404.
func TestQRCode(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	contains(t, "page", r.get("/aliases/hook", 200), `src="/aliases/hook/qr.svg"`)
	contains(t, "code", r.get("/aliases/hook/qr.svg", 200), "<svg", "<path d=\"M4 4h1v1h-1z")
	r.get("/aliases/other/qr.svg", 404)
}
