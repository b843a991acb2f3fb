package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/record"
	"relay/signature"
)

// signed returns a change that turns an event into one of Stripe, with a signature that is older than the
// event by age.
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
	const definition = `"custom":{"header":"Stripe-Signature","template":"{t}.{body}","prefix":"v1="}`
	if r := decoded[signature.Report](h.post(h.asAlice, verify, `{"provider":"custom",`+definition+`,"secret":"`+secret+`"}`).want(200)); r.Verdict.Verdict != signature.Valid {
		t.Errorf("%+v", r)
	}
	h.post(h.asAlice, verify, `{"provider":"custom",`+definition+`}`).code(422, "validation-failed")
	h.post(h.asAlice, verify, `{"provider":"stripe",`+definition+`,"secret":"x"}`).code(422, "validation-failed")
	h.post(h.asAlice, verify, `{"provider":"custom","secret":"x"}`).code(422, "validation-failed")
	h.post(h.asBob, verify, `{}`).code(404, "not-found")
	h.post(h.token("alice", relay.Token{Scopes: relay.ScopeEventsWrite}), verify, `{}`).code(403, "forbidden")
	if strings.Contains(log.String(), secret) {
		t.Error("the log has the secret in it")
	}
	for range 10 * 60 { // the limit is 60, and the calls of a minute return while the test runs
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
		if p.Name == "" || p.Scheme == "" || len(p.Headers) == 0 && p.CanSign != "body" && !slices.Contains([]string{"custom", "event-grid", "graph"}, p.Name) || p.CheckedWith != "library" && p.CheckedWith != "vector" || i > 0 && p.Name < list[i-1].Name {
			t.Errorf("row %+v", p)
		}
	}
	if len(list) < 50 || !kinds["yes"] || !kinds["body"] || !kinds["url"] || !kinds["key-pair"] {
		t.Errorf("%d rows, %v", len(list), kinds)
	}
}

// TestVerifyByKeptSecrets: without a secret in the call, the secrets of the alias verify the event. The
// record of the event then has the same verdict.
func TestVerifyByKeptSecrets(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	const value = "whsec_kept-secret-of-the-test"
	id := h.event("shop", signed(value, `{"id":"evt_1"}`, time.Second)).String()
	verdicts := func() string {
		t.Helper()
		r := decoded[signature.Report](h.post(h.asAlice, "/api/v1/events/"+id+"/verify", "").want(200))
		e := decoded[record.Event](h.get(h.asAlice, "/api/v1/events/"+id).want(200))
		if e.Signature == nil || e.Signature.Verdict != r.Verdict.Verdict || e.Signature.Reason != r.Reason {
			t.Errorf("the record says %+v, verify %+v", e.Signature, r.Verdict)
		}
		list := decoded[record.Page](h.get(h.asAlice, "/api/v1/events?signature="+r.Verdict.Verdict).want(200))
		if len(list.Data) != 1 || list.Data[0].ID != id {
			t.Errorf("signature=%s selects %d events", r.Verdict.Verdict, len(list.Data))
		}
		return r.Verdict.Verdict + " " + r.Reason
	}
	if got := verdicts(); got != "unchecked no-secret" {
		t.Errorf("without a secret: %s", got)
	}
	wrong := decoded[record.SenderSecret](h.post(h.asAlice, "/api/v1/aliases/shop/secrets", `{"provider":"stripe","secret":"whsec_other"}`).want(201))
	if e := decoded[record.Event](h.get(h.asAlice, "/api/v1/events/"+id).want(200)); e.Signature.Verdict != "invalid" || e.Signature.SignedAt == nil {
		t.Errorf("a new secret has not judged it again: %+v", e.Signature)
	}
	if got := verdicts(); got != "invalid wrong-secret" {
		t.Errorf("with the wrong secret: %s", got)
	}
	// Verifying with a secret in the call does not change the stored verdict.
	if a := h.post(h.asAlice, "/api/v1/events/"+id+"/verify", `{"secret":"`+value+`"}`).want(200); !strings.Contains(a.body, `"valid"`) {
		t.Errorf("with the right one: %s", a.body)
	}
	if e := decoded[record.Event](h.get(h.asAlice, "/api/v1/events/"+id).want(200)); e.Signature.Verdict != "invalid" {
		t.Errorf("the call was kept: %+v", e.Signature)
	}
	right := decoded[record.SenderSecret](h.post(h.asAlice, "/api/v1/aliases/shop/secrets", `{"provider":"stripe","secret":"`+value+`"}`).want(201))
	if e := decoded[record.Event](h.get(h.asAlice, "/api/v1/events/"+id).want(200)); e.Signature.Verdict != "valid" || e.Signature.SecretID == nil || *e.Signature.SecretID != right.ID {
		t.Errorf("with the right secret: %+v", e.Signature)
	}
	h.call("DELETE", h.asAlice, "/api/v1/aliases/shop/secrets/"+wrong.ID, "").want(204)
	if got := verdicts(); got != "valid ok" {
		t.Errorf("at the end: %s", got)
	}
	h.get(h.asAlice, "/api/v1/events?signature=good").code(422, "validation-failed")
	share := h.share(mustID(t, id), `{"view":true}`)
	if shown := h.get("", "/api/v1/shared/"+share.Token).want(200); strings.Contains(shown.body, "verdict") {
		t.Errorf("a share says %s", shown.body)
	}
}

func mustID(t *testing.T, text string) relay.ID {
	t.Helper()
	id, err := relay.ParseID(text)
	must(t, err)
	return id
}
