package api_test

import (
	"strings"
	"testing"

	"relay"
	"relay/record"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	was := h.event("shop", nil).String()
	is := h.event("shop", func(e *relay.Event) {
		e.Target = []byte("/other")
		e.Attempts[0].Status, e.Attempts[0].Response = 500, message("HTTP/1.1 500 Oops\r\nDate: now\r\nContent-Length: 3\r\n\r\n", "bad")
	}).String()
	waits := h.event("shop", queued).String()
	foreign := h.event("other", nil).String()
	d := decoded[record.Diff](h.get(h.asAlice, "/api/v1/diff?left="+was+"/1&right="+is+"/1").want(200))
	if d.Part != "response" || d.Status.Right != 500 || d.Headline != "200 → 500, 1 line changed, same latency" || len(d.Body.Changes) != 2 || d.Body.Kind != "text" {
		t.Errorf("responses: %+v", d)
	}
	if h := d.Headers; len(h) != 2 || h[0].Name != "Content-Length" || h[1].Name != "Date" || !h[1].Noise {
		t.Errorf("headers: %+v", h)
	}
	d = decoded[record.Diff](h.get(h.asAlice, "/api/v1/diff?left="+was+"&right="+is+"&part=request").want(200))
	if d.Status != nil || d.Request == nil || d.Request.Right != "POST /other" || !d.Body.Same || !strings.Contains(d.Headline, "same body") {
		t.Errorf("requests: %+v", d)
	}
	d = decoded[record.Diff](h.get(h.asAlice, "/api/v1/diff?left="+was+"&right="+was+"&part=response").want(200))
	if d.Left != was+"/1" || !d.Body.Same {
		t.Errorf("an event without a number: %+v", d)
	}
	for query, status := range map[string]int{
		"left=" + was:                                  422,
		"left=" + was + "&right=" + foreign:            404,
		"left=" + was + "/1&right=" + waits:            404,
		"left=" + was + "/7&right=" + is:               404,
		"left=" + was + "/x&right=" + is:               404,
		"left=%00&right=" + is + "&part=other":         404,
		"left=" + was + "&right=" + is + "&part=body":  422,
		"left=" + was + "&right=" + is + "&partt=body": 422,
	} {
		h.get(h.asAlice, "/api/v1/diff?"+query).want(status)
	}
	// An attempt that exists but has no response gets an error that says so.
	for path, said := range map[string]string{
		"diff?left=" + was + "/1&right=" + waits:          "no attempt of " + waits + " has a response",
		"diff?left=" + was + "/1&right=" + waits + "/1":   "attempt 1 of " + waits + " has no response",
		"events/" + waits + "/attempts/1/response.raw":    "attempt 1 of " + waits + " has no response",
		"events/" + waits + "/attempts/1/request.raw":     "nothing of attempt 1 of " + waits + " was sent",
		"diff?left=" + was + "/1&right=" + waits + "/2":   "not found, or your account has no access",
		"events/" + waits + "/attempts/2/response.body":   "not found, or your account has no access",
		"diff?left=" + was + "/1&right=" + foreign + "/1": "not found, or your account has no access",
	} {
		if a := h.get(h.asAlice, "/api/v1/"+path).code(404, relay.CodeNotFound); !strings.Contains(a.body, said) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}
