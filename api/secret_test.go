package api_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"relay"
	"relay/api"
	"relay/record"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := newFixture(t, func(o *api.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	const value, path = "whsec_value-of-the-test", "/api/v1/aliases/shop/secrets"
	var answers strings.Builder
	tell := func(a *answer) *answer { answers.WriteString(a.body); return a }
	made := decoded[record.SenderSecret](tell(h.post(h.asAlice, path, `{"provider":"stripe","secret":"`+value+`","path":"/pay","sign":true}`).want(201)))
	if !strings.HasPrefix(made.ID, "sec_") || made.Provider != "stripe" || made.Path == nil || *made.Path != "/pay" || !made.Sign ||
		made.CreatedBy != "token:alice-ci" || made.LastValidAt != nil {
		t.Errorf("made %+v", made)
	}
	if plain := tell(h.post(h.asAlice, path, `{"provider":"github","secret":"`+value+`","path":null}`).want(201)); !strings.Contains(plain.body, `"path":null,"sign":false`) ||
		!strings.Contains(plain.body, `"lastValidAt":null`) || strings.Contains(plain.body, "custom") {
		t.Errorf("made %s", plain.body)
	}
	if list := decoded[record.List[record.SenderSecret]](tell(h.get(h.asAlice, path).want(200))); len(list.Data) != 2 || list.Data[0].ID != made.ID {
		t.Errorf("listed %+v", list)
	}
	for _, bad := range []string{
		`{}`, `{"provider":"stripe"}`, `{"secret":"` + value + `"}`, `{"provider":"strpie","secret":"` + value + `"}`, `{"provider":"stripe","secret":["` + value + `"]}`,
		`{"provider":"stripe","secert":"` + value + `"}`, `{"provider":"stripe","secret":"` + value + ` "}`, `{"provider":"stripe","secret":"` + value + `","path":"pay"}`,
		`{"provider":"stripe","secret":"` + value + `","sign":"` + value + `"}`, `{"provider":"standard-webhooks","secret":"` + value + `!"}`,
		`{"provider":"stripe","secret":"sk_test_1"}`, `{"provider":"standard-webhooks","secret":"whpk_AAAA"}`, `{"provider":"paypal","secret":"x"}`,
	} {
		tell(h.post(h.asAlice, path, bad).code(422, "validation-failed"))
	}
	h.post(h.asAlice, path, `{`).code(400, "bad-request")
	h.call("PUT", h.asBob, "/api/v1/aliases/other/members/alice", "").want(204)
	h.post(h.asAlice, "/api/v1/aliases/other/secrets", `{"provider":"github","secret":"x"}`).code(403, "forbidden")
	h.get(h.asAlice, "/api/v1/aliases/other/secrets").want(200)
	h.get(h.asBob, path).code(404, "not-found")
	h.post(h.asBob, path, `{"provider":"github","secret":"x"}`).code(404, "not-found")
	h.post(h.token("alice", relay.Token{Scopes: relay.ScopeAliasesRead}), path, `{"provider":"github","secret":"x"}`).code(403, "forbidden")
	h.get(h.token("alice", relay.Token{Scopes: relay.ScopeEventsRead}), path).code(403, "forbidden")
	for range relay.MaxSecrets - 2 {
		h.post(h.asAlice, path, `{"provider":"github","secret":"x"}`).want(201)
	}
	h.post(h.asAlice, path, `{"provider":"github","secret":"x"}`).code(409, "conflict")
	h.call("DELETE", h.asBob, path+"/"+made.ID, "").code(404, "not-found")
	h.call("DELETE", h.asAlice, path+"/"+made.ID, "").want(204)
	h.call("DELETE", h.asAlice, path+"/"+made.ID, "").code(404, "not-found")
	tell(h.get(h.asAlice, "/api/v1/audit").want(200))
	if all := answers.String() + log.String(); strings.Contains(all, value) {
		t.Errorf("the value is in an answer or in the log: …%s…", all[max(strings.Index(all, value)-200, 0):][:300])
	}
	if !strings.Contains(answers.String(), `"secret.add"`) {
		t.Error("no audit entry")
	}
}

// TestSecretOfAnEvent: Asana and Notion send their secret in a challenge. To store that secret, the user of the API
// names the event of the challenge instead of the secret. No answer shows the secret.
func TestSecretOfAnEvent(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	const path, value = "/api/v1/aliases/shop/secrets", "b537207f20cbfa02357cf448134da559e8bd39d6"
	asana := h.event("shop", func(e *relay.Event) {
		e.Request = message("POST / HTTP/1.1\r\nHost: shop.localhost\r\nX-Hook-Secret: "+value+"\r\nContent-Length: 0\r\n\r\n", "")
	}).String()
	notion := h.event("shop", func(e *relay.Event) {
		e.Request = message("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Type: application/json\r\n\r\n", `{"verification_token":"`+value+`"}`)
	}).String()
	plain, foreign := h.event("shop", nil).String(), h.event("other", nil).String()
	for provider, id := range map[string]string{"asana": asana, "notion": notion} {
		made := h.post(h.asAlice, path, `{"provider":"`+provider+`","from":"`+id+`"}`).want(201)
		if !strings.Contains(made.body, `"provider":"`+provider+`"`) || strings.Contains(made.body, value) {
			t.Errorf("made %s", made.body)
		}
	}
	a, err := h.store.Alias(t.Context(), h.alice, "shop")
	must(t, err)
	open, err := h.store.OpenSecrets(t.Context(), a.ID)
	must(t, err)
	if len(open) != 2 || open[0].Value.Reveal() != value || open[1].Value.Reveal() != value {
		t.Errorf("%d are kept", len(open))
	}
	h.post(h.asAlice, path, `{"provider":"stripe","from":"`+asana+`"}`).code(422, "validation-failed")
	h.post(h.asAlice, path, `{"provider":"asana","from":"`+plain+`"}`).code(422, "validation-failed")
	h.post(h.asAlice, path, `{"provider":"asana","secret":"x","from":"`+asana+`"}`).code(422, "validation-failed")
	h.post(h.asAlice, path, `{"provider":"asana","from":"`+foreign+`"}`).code(404, "not-found")
	h.post(h.asAlice, path, `{"provider":"asana","from":"evt_no"}`).code(404, "not-found")
	h.post(h.asBob, path, `{"provider":"asana","from":"`+asana+`"}`).code(404, "not-found")
}

func TestSecretsNeedAFreshLogin(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(o *api.Options) { o.Accounts = agedSessions{o.Accounts} })
	session := h.session("alice")
	made := decoded[record.SenderSecret](h.post(h.asAlice, "/api/v1/aliases/shop/secrets", `{"provider":"github","secret":"x"}`).want(201))
	for _, line := range []string{
		`POST /api/v1/aliases/shop/secrets {"provider":"github","secret":"x"}`, fmt.Sprintf("DELETE /api/v1/aliases/shop/secrets/%s ", made.ID),
	} {
		method, rest, _ := strings.Cut(line, " ")
		target, body, _ := strings.Cut(rest, " ")
		r := h.request(method, "", target, body)
		r.AddCookie(&http.Cookie{Name: "relay_session", Value: session})
		h.do(r).code(403, "login-too-old")
	}
}
