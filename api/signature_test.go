package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/record"
	"relay/signature"
)

// signed makes an event of Stripe that was signed some time before it arrived.
func signed(secret, body string, age time.Duration) func(*relay.Event) {
	return func(e *relay.Event) {
		c, err := signature.Sign(&signature.Find("stripe", nil).Schemes[0], secret, &signature.Request{Body: []byte(body)}, e.ReceivedAt.Add(-age))
		if err != nil {
			panic(err)
		}
		e.Request = message(fmt.Sprintf("POST /hook HTTP/1.1\r\nHost: shop.localhost\r\n%s: %s\r\nContent-Length: %d\r\n\r\n", c.Lines[0].Name, c.Lines[0].Value, len(body)), body)
		e.Provider = record.Recognise(e.Request.Head, []byte(body))
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := newFixture(t, func(o *api.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	const secret = "whsec_the-secret-of-the-test"
	fresh := h.event("shop", signed(secret, `{"id":"evt_1"}`, time.Second)).String()
	old := h.event("shop", signed(secret, `{"id":"evt_1"}`, time.Hour)).String()
	plain := h.event("shop", nil).String()
	cut := h.event("shop", func(e *relay.Event) {
		signed(secret, "{}", 0)(e)
		rejected(e)
	}).String()
	ask := func(id string, q map[string]string) string {
		body, err := json.Marshal(q)
		must(t, err)
		a := h.post(h.asAlice, "/api/v1/events/"+id+"/verify", string(body)).want(200)
		if strings.Contains(a.body, secret) {
			t.Errorf("the answer has the secret in it: %s", a.body)
		}
		r := decoded[signature.Report](a)
		return r.Verdict.Verdict + " " + r.Reason
	}
	for _, tt := range []struct {
		id   string
		q    map[string]string
		want string
	}{
		{fresh, map[string]string{"secret": secret}, "valid ok"},
		{fresh, map[string]string{"secret": secret, "provider": "stripe"}, "valid ok"},
		{fresh, map[string]string{"secret": secret + "\n"}, "invalid secret-whitespace"},
		{fresh, map[string]string{"secret": "other"}, "invalid wrong-secret"},
		{fresh, map[string]string{}, "unchecked no-secret"},
		{old, map[string]string{"secret": secret}, "expired time-too-old"},
		{cut, map[string]string{"secret": secret}, "unchecked body-incomplete"},
		{plain, map[string]string{"secret": secret, "provider": "github"}, "missing header-missing"},
		{plain, map[string]string{"secret": secret}, "unchecked no-secret"},
	} {
		if got := ask(tt.id, tt.q); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.q, got, tt.want)
		}
	}
	verify := "/api/v1/events/" + fresh + "/verify"
	h.post(h.asAlice, verify, "").want(200)
	h.post(h.asAlice, verify, `{"provider":"strpie"}`).code(422, "validation-failed")
	h.post(h.asAlice, verify, `{"secrets":"x"}`).code(422, "validation-failed")
	h.post(h.asBob, verify, `{}`).code(404, "not-found")
	h.post(h.token("alice", relay.Token{Scopes: relay.ScopeEventsWrite}), verify, `{}`).code(403, "forbidden")
	if strings.Contains(log.String(), secret) {
		t.Error("the log has the secret in it")
	}
	for range 60 {
		if a := h.post(h.asAlice, verify, `{}`); a.status == 429 {
			return
		}
	}
	t.Error("verifications are not limited")
}

func TestProviders(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.get("", "/api/v1/providers").code(401, "unauthorized")
	list := decoded[record.List[record.SignatureProvider]](h.get(h.asAlice, "/api/v1/providers").want(200)).Data
	kinds := map[string]bool{}
	for i, p := range list {
		kinds[p.CanSign] = true
		if p.Name == "" || p.Scheme == "" || len(p.Headers) == 0 && p.CanSign != "body" || p.CheckedWith == "" || i > 0 && p.Name < list[i-1].Name {
			t.Errorf("row %+v", p)
		}
	}
	if len(list) < 50 || !kinds["yes"] || !kinds["body"] || !kinds["url"] || !kinds["key-pair"] {
		t.Errorf("%d rows, %v", len(list), kinds)
	}
}
