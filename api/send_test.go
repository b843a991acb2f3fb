package api_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/compose"
	"relay/record"
	"relay/signature"
)

// oneSecret holds one secret that may sign: of Stripe, or of the sender in the field provider.
type oneSecret struct {
	sealed          bool
	used            *int
	provider, value string // sender and secret in place of Stripe and its secret; "" = Stripe
}

func (oneSecret) OpenSecrets(context.Context, int64) (relay.OpenSecrets, error) { return nil, nil }

func (o oneSecret) NoteSigned(context.Context, relay.Actor, int64, relay.SenderSecret) error {
	if o.used != nil {
		*o.used++
	}
	return nil
}

func (o oneSecret) SigningSecret(_ context.Context, _ int64, provider, _, id string, _ func(string) bool) (relay.OpenSecret, error) {
	switch {
	case o.provider != "":
		return relay.OpenSecret{SenderSecret: relay.SenderSecret{ID: "sec_1"}, Value: relay.NewSecretText(o.value)}, nil
	case o.sealed:
		return relay.OpenSecret{}, relay.Errorf(relay.CodeSecretUnavailable, "sealed")
	case provider != "stripe" || id != "" && id != "sec_1":
		return relay.OpenSecret{}, relay.Errorf(relay.CodeNoSigningSecret, "none")
	}
	return relay.OpenSecret{SenderSecret: relay.SenderSecret{ID: "sec_1"}, Value: relay.NewSecretText("whsec_test")}, nil
}

// sender is a fixture whose sends are stored as delivered; sent holds their bytes.
type sender struct {
	*fixture
	sent []string
}

func newSender(t *testing.T, changes ...func(*api.Options)) *sender {
	h := &sender{}
	h.fixture = newFixture(t, append([]func(*api.Options){func(o *api.Options) {
		o.Secrets, o.Sending = oneSecret{}, compose.Limits{Head: 4000, Target: 1000, Body: 500_000}
	}}, changes...)...)
	h.deliver.state = relay.TunnelOnline
	h.deliver.send = func(who relay.Actor, out relay.Outgoing) (*relay.Event, error) {
		r := compose.From(&out.Request, out.Request.Body.Data)
		h.sent = append(h.sent, string(r.Wire()))
		id := h.event(out.Alias.Name, func(e *relay.Event) {
			e.Request, e.Sent = out.Request, &out.Sent
		})
		e, err := h.store.Request(t.Context(), who, id, 0)
		if err == nil {
			e.Attempts, err = h.store.Attempts(t.Context(), who, id, relay.AttemptPage{Limit: 1})
		}
		return e, err
	}
	return h
}

// stripe stores an event with a signature of Stripe, and returns its id and bytes.
func (h *sender) stripe() (id relay.ID, raw string) {
	body := `{"id":"evt_1","type":"invoice.paid", "data":{"object":{"status":"open","n":1.0}}}`
	head := fmt.Sprintf("POST /hook HTTP/1.1\r\nHost: shop.localhost\r\nStripe-Signature: t=1700000000,v1=00\r\nX-Odd:\tkept \r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n", len(body))
	return h.event("shop", func(e *relay.Event) { e.Request, e.Target = message(head, body), []byte("/hook") }), head + body
}

const sendTarget = "/api/v1/aliases/shop/send"

func TestSendFromAnEvent(t *testing.T) {
	t.Parallel()
	h := newSender(t)
	id, raw := h.stripe()
	e := decoded[record.Event](h.post(h.asAlice, sendTarget, `{"from":"`+id.String()+`","headers":[["X-New","1"]],"set":{"data.object.status":"paid"},"body":null}`).want(200))
	want := strings.Replace(raw, `"open"`, `"paid"`, 1)
	want = strings.Replace(want, "application/json\r\n", "application/json\r\nX-New: 1\r\n", 1)
	if h.sent[0] != want {
		t.Errorf("sent\n%q, want\n%q", h.sent[0], want)
	}
	if e.Origin != relay.OriginSend || e.Sent == nil || e.Actor != "token:alice-ci" || e.MadeFrom == nil || *e.MadeFrom != id.String() || e.SignedBy != nil ||
		!slices.Equal(e.Changes, []string{"body:/data/object/status", "header:x-new"}) || e.ID == id.String() {
		t.Errorf("%+v %+v", e.Summary, e.Sent)
	}
	// A send with sign=auto replaces the old signature by one that is valid now.
	e = decoded[record.Event](h.post(h.asAlice, sendTarget, `{"from":"`+id.String()+`","sign":"auto"}`).want(200))
	if !slices.Equal(e.Changes, []string{"header:stripe-signature"}) || e.SignedBy == nil || *e.SignedBy != "sec_1" {
		t.Errorf("%+v", e.Sent)
	}
	r, err := compose.Parse([]byte(h.sent[1]))
	must(t, err)
	request := &signature.Request{Method: "POST", Body: r.Body, Line: r.Line}
	if v := signature.Explain(signature.Find("stripe", nil), []signature.Secret{{Value: "whsec_test"}}, nil, request, time.Now()).Verdict; v.Verdict != signature.Valid {
		t.Errorf("%+v", v)
	}
	if list := decoded[record.Page](h.get(h.asAlice, "/api/v1/events?alias=shop&origin=send").want(200)); len(list.Data) != 2 || list.Data[0].Sent == nil {
		t.Errorf("%d events with origin send", len(list.Data))
	}
	original := h.get(h.asAlice, "/api/v1/events/"+id.String()+"/request.raw").want(200).body
	if original != raw {
		t.Errorf("the original became %q", original)
	}
	if e := decoded[record.Event](h.get(h.asAlice, "/api/v1/events/"+id.String()).want(200)); e.Origin != relay.OriginCaller || e.Sent != nil || strings.Contains(h.get(h.asAlice, "/api/v1/events/"+id.String()).body, `"madeFrom"`) {
		t.Errorf("%+v", e.Summary)
	}
}

func TestSendFromNothingAndDryRun(t *testing.T) {
	t.Parallel()
	h := newSender(t)
	h.deliver.state = relay.TunnelOffline
	call := `{"method":"POST","path":"/a?b","body":{"encoding":"utf8","data":"{\"n\":1}"}`
	p := decoded[struct {
		Request record.Message
		Raw     string
		Changes []string
	}](h.post(h.asAlice, sendTarget, call+`,"dryRun":true}`).want(200))
	raw, _ := base64.StdEncoding.DecodeString(p.Raw)
	want := "POST /a?b HTTP/1.1\r\nHost: shop.localhost:8080\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"n\":1}"
	if string(raw) != want || p.Request.Body.Size != 7 || len(h.sent) > 0 {
		t.Errorf("%q", raw)
	}
	h.post(h.asAlice, sendTarget, call+`}`).code(409, "alias-offline")
	h.deliver.state = relay.TunnelOnline
	e := decoded[record.Event](h.post(h.asAlice, sendTarget, call+`}`).want(200))
	if h.sent[0] != want || e.MadeFrom != nil || len(e.Changes) != 0 || e.Changes == nil {
		t.Errorf("%q, %+v", h.sent[0], e.Sent)
	}
}

func TestSendExactBytes(t *testing.T) {
	t.Parallel()
	h := newSender(t)
	id, old := h.stripe()
	exact := func(query, raw string) *answer {
		r := h.request("POST", h.asAlice, sendTarget+query, raw)
		r.Header.Set("Content-Type", "message/http")
		return h.do(r)
	}
	raw := strings.Replace(old, "v1=00", "v1=11", 1)
	e := decoded[record.Event](exact("?from="+id.String(), raw).want(200))
	if h.sent[0] != raw || e.SignedBy == nil || *e.SignedBy != relay.SignedByClient || !slices.Equal(e.Changes, []string{"header:stripe-signature"}) {
		t.Errorf("%q, %+v", h.sent[0], e.Sent)
	}
	if e = decoded[record.Event](exact("?sign=stripe&wait=5s", raw).want(200)); *e.SignedBy != "sec_1" || e.MadeFrom != nil {
		t.Errorf("%+v", e.Sent)
	}
	// The old signature was made by the sender, so SignedBy is absent.
	if e = decoded[record.Event](exact("?from="+id.String(), strings.Replace(old, "/hook", "/other", 1)).want(200)); e.SignedBy != nil {
		t.Errorf("signed by %s", *e.SignedBy)
	}
	exact("", raw+"x").code(422, "validation-failed")
	exact("", "GET / HTTP/1.1\r\n\r\n").code(422, "validation-failed")
	exact("?sign=nobody", raw).code(422, "validation-failed")
	exact("?from=evt_1", raw).code(404, "not-found")
	exact("", raw+strings.Repeat("x", 1<<20)).code(413, "body-too-large")
}

func TestSendRefuses(t *testing.T) {
	t.Parallel()
	h := newSender(t)
	id, _ := h.stripe()
	foreign := h.event("other", nil)
	from := `{"from":"` + id.String() + `"`
	for _, c := range []struct {
		body, code, field string
		status            int
	}{
		{`{`, "bad-request", "", 400},
		{`{}`, "validation-failed", "body", 422},
		{from + `,"sample":"github/push"}`, "validation-failed", "body", 422},
		{from + `,"x":1}`, "validation-failed", "body.x", 422},
		{from + `,"headers":[["A"]]}`, "validation-failed", "body.headers[0]", 422},
		{from + `,"headers":[["A","b\n"]]}`, "validation-failed", "body.headers[0]", 422},
		{from + `,"headers":[["Content-Length","1"]]}`, "validation-failed", "body.headers[0]", 422},
		{from + `,"headers":{"A":"b"}}`, "validation-failed", "body.headers", 422},
		{from + `,"removeHeaders":["Host"]}`, "validation-failed", "body.headers", 422},
		{from + `,"path":"x"}`, "validation-failed", "body.path", 422},
		{from + `,"path":"/` + strings.Repeat("x", 1000) + `"}`, "validation-failed", "body.path", 422},
		{from + `,"headers":[["A","` + strings.Repeat("x", 4000) + `"]]}`, "validation-failed", "body.headers", 422},
		{from + `,"set":{"nothing.here":1}}`, "validation-failed", "body.set", 422},
		{from + `,"body":{"encoding":"base64","data":"%"}}`, "validation-failed", "body.body.data", 422},
		{from + `,"body":{"encoding":"utf8","data":"` + strings.Repeat("x", 600_000) + `"}}`, "body-too-large", "", 413},
		{from + `,"sign":"nobody"}`, "validation-failed", "body.sign", 422},
		{from + `,"sign":"github"}`, "no-signing-secret", "", 409},
		{from + `,"sign":"auto","secretId":"sec_2"}`, "no-signing-secret", "", 409},
		{from + `,"sign":"discord"}`, "cannot-sign", "", 409},
		{`{"method":"POST","sign":"auto"}`, "no-signing-secret", "", 409},
		{`{"method":"POST","newId":true}`, "validation-failed", "body.newId", 422},
		{`{"from":"` + foreign.String() + `"}`, "not-found", "", 404},
		{`{"from":"x"}`, "not-found", "", 404},
	} {
		p := h.post(h.asAlice, sendTarget, c.body).code(c.status, c.code).problem()
		if c.field != "" && (len(p.Errors) == 0 || p.Errors[0].Location != c.field) {
			t.Errorf("%.80s: %+v, want %s", c.body, p.Errors, c.field)
		}
	}
	if len(h.sent) > 0 {
		t.Errorf("%d were sent", len(h.sent))
	}
	h.post(h.asBob, sendTarget, from+`}`).code(404, "not-found")
	h.post(h.token("alice", relay.Token{Name: "r", Scopes: relay.ScopeEventsReplay | relay.ScopeEventsRead}), sendTarget, from+`}`).code(403, "forbidden")
	h.post(h.token("alice", relay.Token{Name: "s", Scopes: relay.ScopeEventsSend}), sendTarget, from+`}`).want(200)
	r := h.request("POST", h.asAlice, sendTarget, "x")
	r.Header.Set("Content-Type", "text/plain")
	h.do(r).code(415, "unsupported-media-type")
	sealed := newSender(t, func(o *api.Options) { o.Secrets = oneSecret{sealed: true} })
	id, _ = sealed.stripe()
	sealed.post(sealed.asAlice, sendTarget, `{"from":"`+id.String()+`","sign":"auto"}`).code(503, "secret-unavailable")
}

// TestSendOnce: a call with the same key sends once, even if the tunnel is offline at the second call. The
// key cannot be used for another request.
func TestSendOnce(t *testing.T) {
	t.Parallel()
	h := newSender(t)
	for i, data := range []string{"small", strings.Repeat("x", 100_000)} {
		h.deliver.state = relay.TunnelOnline
		before := len(h.sent)
		once := func(path string) *answer {
			r := h.request("POST", h.asAlice, sendTarget, `{"method":"POST","path":"`+path+`","body":{"encoding":"utf8","data":"`+data+`"}}`)
			r.Header.Set("Idempotency-Key", fmt.Sprint("k", i))
			return h.do(r)
		}
		first := decoded[record.Event](once("/").want(200))
		h.deliver.state = relay.TunnelOffline
		again := decoded[record.Event](once("/").want(200))
		if len(h.sent) != before+1 || first.ID != again.ID || again.Request.Body.Size != int64(len(data)) {
			t.Errorf("%d were sent, %s and %s", len(h.sent)-before, first.ID, again.ID)
		}
		once("/other").code(422, "validation-failed")
	}
}

func TestSendIsLimitedAsReplays(t *testing.T) {
	t.Parallel()
	h := newSender(t, func(o *api.Options) { o.Limits = api.NewLimits(api.Rate{N: 1, Per: time.Minute}, api.Rate{}) })
	call := `{"method":"GET"}`
	h.post(h.asAlice, sendTarget, call).want(200)
	h.post(h.asAlice, sendTarget, call).code(429, "rate-limited")
	h.deliver.state = relay.TunnelOffline
	h.post(h.asAlice, sendTarget, call).code(409, "alias-offline")
}

// TestSendCountsFirst: a refused call counts against the limit, and a call beyond the limit neither makes a
// request nor reads a secret.
func TestSendCountsFirst(t *testing.T) {
	t.Parallel()
	used := 0
	h := newSender(t, func(o *api.Options) {
		o.Limits = api.NewLimits(api.Rate{N: 2, Per: time.Minute}, api.Rate{})
		o.Secrets = oneSecret{used: &used}
	})
	id, _ := h.stripe()
	bad, signed := `{"from":"`+id.String()+`","set":{"nothing.here":1}}`, `{"from":"`+id.String()+`","sign":"auto"}`
	h.deliver.state = relay.TunnelOffline
	h.post(h.asAlice, sendTarget, signed).code(409, "alias-offline")
	if used != 0 {
		t.Error("a secret was used for a call that was refused")
	}
	h.deliver.state = relay.TunnelOnline
	h.post(h.asAlice, sendTarget, bad).code(422, "validation-failed")
	h.post(h.asAlice, sendTarget, bad).code(429, "rate-limited")
	h.post(h.asAlice, sendTarget, signed).code(429, "rate-limited")
	if used != 0 || len(h.sent) > 0 {
		t.Errorf("a secret was used %d times, %d were sent", used, len(h.sent))
	}
}

// TestSentSecretIsMasked: no answer contains the secret of a sender that sends the secret itself.
func TestSentSecretIsMasked(t *testing.T) {
	t.Parallel()
	for provider, line := range map[string]string{"gitlab": "X-Gitlab-Token", "okta": "Authorization", "deepgram": "dg-token", "postmark": "Authorization"} {
		const value = "tkn-0123456789"
		h := newSender(t, func(o *api.Options) { o.Secrets = oneSecret{provider: provider, value: value} })
		call := `{"method":"POST","headers":[["` + line + `","old"]],"sign":"` + provider + `"`
		for _, body := range []string{call + `,"dryRun":true}`, call + `}`} {
			a := h.post(h.asAlice, sendTarget, body).want(200)
			raw, _ := base64.StdEncoding.DecodeString(decoded[struct{ Raw string }](a).Raw)
			if all := a.body + string(raw); strings.Contains(all, value) || !strings.Contains(all, line) || !strings.Contains(all, "[masked]") {
				t.Errorf("%s: %s %s", provider, a.body, raw)
			}
		}
		if len(h.sent) != 1 || !strings.Contains(h.sent[0], line+": "+value+"\r\n") {
			t.Errorf("%s: %q", provider, h.sent)
		}
		id := decoded[record.Page](h.get(h.asAlice, "/api/v1/events?alias=shop").want(200)).Data[0].ID
		again := h.post(h.asAlice, sendTarget, `{"from":"`+id+`","sign":"`+provider+`"}`).want(200).body // signing leaves the line unchanged
		if strings.Contains(again, value) || !strings.Contains(again, "[masked]") {
			t.Errorf("%s, made from a sent event: %s", provider, again)
		}
		report := h.post(h.asAlice, "/api/v1/events/"+id+"/verify", `{"provider":"`+provider+`","secret":"`+value+`"}`).want(200).body
		if strings.Contains(report, value) || !strings.Contains(report, `"valid"`) {
			t.Errorf("%s: %s", provider, report)
		}
	}
}

// TestOwnAuthorizationIsShown: a header line that may hold a secret is shown if the client set it and
// signing did not.
func TestOwnAuthorizationIsShown(t *testing.T) {
	t.Parallel()
	h := newSender(t)
	id := h.event("shop", func(e *relay.Event) {
		e.Request = message("POST / HTTP/1.1\r\nHost: shop.localhost\r\nAuthorization: Basic own\r\nStripe-Signature: t=1,v1=00\r\nContent-Length: 2\r\n\r\n", "{}")
	})
	for _, more := range []string{`,"dryRun":true}`, `}`} {
		if a := h.post(h.asAlice, sendTarget, `{"from":"`+id.String()+`","sign":"auto"`+more).want(200); !strings.Contains(a.body, "Basic own") {
			t.Errorf("%s: %s", more, a.body)
		}
	}
}

func TestSendSamples(t *testing.T) {
	t.Parallel()
	h := newSender(t)
	if list := decoded[record.List[record.Sample]](h.get(h.asAlice, "/api/v1/samples?provider=stripe").want(200)); len(list.Data) != 2 || list.Data[1].Name != "stripe/invoice.paid" || list.Data[1].Source != "relay" {
		t.Errorf("%+v", list)
	}
	e := decoded[record.Event](h.post(h.asAlice, sendTarget, `{"sample":"stripe/invoice.paid","sign":"auto","newId":false}`).want(200))
	if e.MadeFrom != nil || e.SignedBy == nil || !strings.Contains(h.sent[0], "Stripe-Signature: t=") || !strings.Contains(h.sent[0], "Host: shop.localhost:8080\r\n") {
		t.Errorf("%q, %+v", h.sent[0], e.Sent)
	}
	h.post(h.asAlice, sendTarget, `{"sample":"last:invoice.paid"}`).code(422, "validation-failed")
	id := h.event("shop", func(e *relay.Event) { e.Provider = relay.Provider{Name: "stripe", EventType: "invoice.paid"} })
	h.event("shop", func(e *relay.Event) { // newer than the other event, but incomplete
		e.Provider, e.Blocker = relay.Provider{Name: "stripe", EventType: "invoice.paid"}, relay.BlockedIncomplete
	})
	for range 30 {
		h.event("shop", nil)
	}
	if e = decoded[record.Event](h.post(h.asAlice, sendTarget, `{"sample":"last:invoice.paid"}`).want(200)); *e.MadeFrom != id.String() {
		t.Errorf("%+v", e.Sent)
	}
	for _, name := range []string{"last:invoice.*", "last:*", "last:", "last:invoice"} {
		if p := h.post(h.asAlice, sendTarget, `{"sample":"`+name+`"}`).code(422, "validation-failed").problem(); p.Errors[0].Location != "body.sample" {
			t.Errorf("%s: %+v", name, p)
		}
	}
	h.post(h.asAlice, sendTarget, `{"sample":"stripe/x"}`).code(422, "validation-failed")
}
