package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"relay"
	"relay/api"
	"relay/record"
)

func TestExport(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	base := "/api/v1/events/" + id.String() + "/export"
	for format, want := range map[string]struct{ media, name, text string }{
		"curl":   {"text/plain; charset=utf-8", id.String() + ".sh", "curl -sS"},
		"har":    {"application/json", id.String() + ".har", `"version": "1.2"`},
		"json":   {"application/json", id.String() + ".json", `"id": "` + id.String()},
		"go":     {"text/plain; charset=utf-8", id.String() + "_test.go", "const wantStatus = 200"},
		"js":     {"text/plain; charset=utf-8", id.String() + ".test.js", "const wantStatus = 200"},
		"python": {"text/plain; charset=utf-8", "test_" + id.String() + ".py", "WANT_STATUS = 200"},
	} {
		a := h.get(h.asAlice, base+"?format="+format).want(200)
		if a.header.Get("Content-Type") != want.media || a.header.Get("Content-Disposition") != `attachment; filename="`+want.name+`"` ||
			a.header.Get("Content-Security-Policy") != "sandbox; default-src 'none'" || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: header %v", format, a.header)
		}
		if !strings.Contains(a.body, want.text) || want.media == "application/json" && !json.Valid([]byte(a.body)) {
			t.Errorf("%s: %.500s", format, a.body)
		}
	}
	for _, query := range []string{"", "?format=", "?format=ruby", "?format=go&x=1"} {
		h.get(h.asAlice, base+query).code(422, "validation-failed")
	}
	refused := h.event("shop", rejected)
	path := "/api/v1/events/" + refused.String() + "/export?format="
	h.get(h.asAlice, path+"json").want(200)
	for _, format := range []string{"curl", "har", "go", "js", "python"} {
		h.get(h.asAlice, path+format).code(409, "event-not-replayable")
	}
}

// TestExportOfALargeBody: if the export would contain only a part of the body, the API refuses the format and
// names one that has all of the body.
func TestExportOfALargeBody(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", func(e *relay.Event) {
		e.Request.Body.Size = record.MaxBody + 1 // only this size decides whether the format is refused, so the test needs no real body
	})
	base := "/api/v1/events/" + id.String() + "/export?format="
	for _, format := range []string{"go", "js", "python", "har"} {
		if a := h.get(h.asAlice, base+format).code(409, "conflict"); !strings.Contains(a.body, "export it as curl, or take request.raw") {
			t.Errorf("%s: %s", format, a.body)
		}
	}
	for _, format := range []string{"curl", "json"} {
		h.get(h.asAlice, base+format).want(200)
	}
}

func TestSSH(t *testing.T) {
	t.Parallel()
	key := relay.HostKey{Type: "ssh-ed25519", Key: "AAAA", Fingerprint: "SHA256:x"}
	d := newClientWith(t, nil, func(o *api.Options) {
		o.HostKeys, o.Site.SSHAddr = []relay.HostKey{key}, "localhost:2222"
	})
	a := d.get("", "/api/v1/ssh").want(200)
	want := `{"addr":"localhost:2222","baseUrl":"http://localhost:8080","hostKeys":[{"type":"ssh-ed25519","key":"AAAA","fingerprint":"SHA256:x"}]}`
	if strings.TrimSpace(a.body) != want || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %s", a.header, a.body)
	}
	if a := newClient(t).get("", "/api/v1/ssh").want(200); !strings.Contains(a.body, `"hostKeys":[]`) {
		t.Errorf("without keys: %s", a.body)
	}
}
