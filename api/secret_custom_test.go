package api_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"relay"
	"relay/api"
	"relay/record"
)

// TestCustomSecrets: a secret of the provider custom has a definition, which is checked and shown. The
// definition of other secrets is null.
func TestCustomSecrets(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	const path, definition = "/api/v1/aliases/shop/secrets", `{"header":"X-Shop","template":"{t:X-Time}.{body}","toleranceSeconds":300}`
	made := decoded[record.SenderSecret](h.post(h.asAlice, path, `{"provider":"custom","secret":"s3cret","custom": `+definition+`}`).want(201))
	list := decoded[record.List[record.SenderSecret]](h.get(h.asAlice, path).want(200))
	if string(made.Custom) != definition || len(list.Data) != 1 || string(list.Data[0].Custom) != definition {
		t.Errorf("made %s, listed %+v", made.Custom, list)
	}
	for body, field := range map[string]string{
		`{"provider":"custom","secret":"x"}`:                                                         "body.custom",
		`{"provider":"custom","secret":"x","custom":null}`:                                           "body.custom",
		`{"provider":"custom","secret":"x","custom":{"header":"A","template":"{body}","x":1}}`:       "body.custom",
		`{"provider":"custom","secret":"x","custom":{"header":"A B","template":"{body}"}}`:           "body.custom.header",
		`{"provider":"custom","secret":"x","custom":{"header":"A","template":"{body}{body}"}}`:       "body.custom.template",
		`{"provider":"custom","secret":"x","custom":{"header":"A","template":"{body}","hash":"x"}}`:  "body.custom.hash",
		`{"provider":"custom","secret":"%","custom":{"header":"A","template":"{body}","key":"hex"}}`: "body.secret",
		`{"provider":"custom","secret":"x","path":"a","custom":` + definition + `}`:                  "body.path",
		`{"provider":"github","secret":"x","custom":` + definition + `}`:                             "body.custom",
	} {
		p := h.post(h.asAlice, path, body).code(422, "validation-failed").problem()
		if len(p.Errors) != 1 || !strings.HasSuffix(field, p.Errors[0].Location) && p.Errors[0].Location != field {
			t.Errorf("%s: %+v, want %s", body, p.Errors, field)
		}
	}
	h.post(h.asAlice, path, `{"provider":"github","secret":"x","custom":null}`).want(201)
}

// customSecret holds one secret with a definition.
type customSecret struct{ oneSecret }

func (customSecret) SigningSecret(_ context.Context, _ int64, provider, _, _ string, _ func(string) bool) (relay.OpenSecret, error) {
	if provider != "custom" {
		return relay.OpenSecret{}, relay.Errorf(relay.CodeNoSigningSecret, "none")
	}
	return relay.OpenSecret{SenderSecret: relay.SenderSecret{ID: "sec_c", Provider: provider, Custom: `{"header":"X-Shop","template":"{body}"}`}, Value: relay.NewSecretText("secret")}, nil
}

func TestSendSignedByACustomScheme(t *testing.T) {
	t.Parallel()
	h := newSender(t, func(o *api.Options) { o.Secrets = customSecret{} })
	p := decoded[struct{ Raw, SignedBy string }](h.post(h.asAlice, sendTarget, `{"method":"POST","body":{"encoding":"utf8","data":"hello"},"sign":"custom","dryRun":true}`).want(200))
	raw, _ := base64.StdEncoding.DecodeString(p.Raw)
	if !strings.Contains(string(raw), "\r\nX-Shop: 88aab3ede8d3adf94d26ab90d3bafd4a2083070c3bcce9c014ee04a443847c0b\r\n") || p.SignedBy != "sec_c" { // the expected signature was computed with openssl
		t.Errorf("%s, %+v", raw, p)
	}
}

// TestSendSignedAsWhatItIsMadeFrom: a new signature uses the sender and the scheme of the base event, even if
// a change adds or removes header lines. If the sender of the base event is unknown, the signature uses the
// definition that verifies the base event.
func TestSendSignedAsWhatItIsMadeFrom(t *testing.T) {
	t.Parallel()
	h := newSender(t, func(o *api.Options) { o.Secrets = keptSecrets{} })
	id, _ := h.stripe()
	shop := h.event("shop", func(e *relay.Event) {
		e.Request, e.Target = message("POST /shop HTTP/1.1\r\nHost: shop.localhost\r\nX-Shop: 00\r\nContent-Length: 2\r\n\r\n", "hi"), []byte("/shop")
	})
	gitlab := h.event("shop", func(e *relay.Event) {
		e.Request = message("POST / HTTP/1.1\r\nHost: shop.localhost\r\nX-Gitlab-Event: Push Hook\r\nwebhook-id: 1\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,00\r\nContent-Length: 2\r\n\r\n", "{}")
	})
	type made struct {
		Raw, SignedBy string
		Changes       []string
	}
	for name, c := range map[string]struct{ body, line, by string }{
		"line removed":            {`{"from":"` + id.String() + `","removeHeaders":["Stripe-Signature"],"sign":"auto"`, "\r\nStripe-Signature: t=", "sec_stripe"},
		"a line of another":       {`{"from":"` + id.String() + `","headers":[["X-GitHub-Event","push"]],"sign":"auto"`, "v1=", "sec_stripe"},
		"another, named":          {`{"from":"` + id.String() + `","sign":"github"`, "\r\nX-Hub-Signature-256: sha256=", "sec_github"},
		"from nothing":            {`{"method":"POST","headers":[["X-GitHub-Event","push"]],"sign":"auto"`, "\r\nX-Hub-Signature-256: sha256=", "sec_github"},
		"its definition":          {`{"from":"` + shop.String() + `","sign":"auto"`, "\r\nX-Shop: ", "sec_shop"},
		"its definition, removed": {`{"from":"` + shop.String() + `","removeHeaders":["X-Shop"],"sign":"auto"`, "\r\nX-Shop: ", "sec_shop"},
		"its definition, named":   {`{"from":"` + shop.String() + `","sign":"custom"`, "\r\nX-Shop: ", "sec_shop"},
		"another definition":      {`{"from":"` + shop.String() + `","sign":"custom","secretId":"sec_other"`, "\r\nX-Other: ", "sec_other"},
		"by its id":               {`{"method":"POST","sign":"auto","secretId":"sec_other"`, "\r\nX-Other: ", "sec_other"},
		"an unsigned GitLab":      {`{"method":"POST","headers":[["X-Gitlab-Event","Push Hook"]],"sign":"auto"`, "\r\nX-Gitlab-Token: [masked]\r\n", "sec_gitlab"},
		"a signed GitLab":         {`{"from":"` + gitlab.String() + `","sign":"auto"`, "\r\nwebhook-signature: v1,", "sec_key"},
		"a sample":                {`{"sample":"github/push","removeHeaders":["X-GitHub-Event"],"sign":"auto"`, "\r\nX-Hub-Signature-256: sha256=", "sec_github"},
	} {
		p := decoded[made](h.post(h.asAlice, sendTarget, c.body+`,"dryRun":true}`).want(200))
		if raw, _ := base64.StdEncoding.DecodeString(p.Raw); !strings.Contains(string(raw), c.line) || p.SignedBy != c.by {
			t.Errorf("%s: %q, %+v", name, raw, p)
		}
	}
	h.post(h.asAlice, sendTarget, `{"method":"POST","sign":"auto","dryRun":true}`).code(409, "no-signing-secret")
	// The alias has no secret of the recognised sender, so a custom definition verifies the event and signs a
	// new one.
	judged := h.event("shop", func(e *relay.Event) {
		e.Request, e.Target = message("POST /shop HTTP/1.1\r\nHost: shop.localhost\r\nlinear-signature: 00\r\nX-Shop: 00\r\nContent-Length: 2\r\n\r\n", "hi"), []byte("/shop")
	})
	if p := decoded[made](h.post(h.asAlice, sendTarget, `{"from":"`+judged.String()+`","sign":"auto","dryRun":true}`).want(200)); p.SignedBy != "sec_shop" {
		t.Errorf("the sender that judges does not sign: %+v", p)
	}
	h.post(h.asAlice, sendTarget, `{"method":"POST","sign":"auto","secretId":"sec_none","dryRun":true}`).code(409, "no-signing-secret")
}

// keptSecrets holds the secrets of three senders and two custom definitions.
type keptSecrets struct{}

func (keptSecrets) OpenSecrets(context.Context, int64) (relay.OpenSecrets, error) {
	var list relay.OpenSecrets
	for _, s := range []relay.SenderSecret{
		{ID: "sec_stripe", Provider: "stripe"},
		{ID: "sec_github", Provider: "github"},
		{ID: "sec_gitlab", Provider: "gitlab"},
		{ID: "sec_key", Provider: "gitlab"},
		{ID: "sec_shop", Provider: "custom", Custom: `{"header":"X-Shop","template":"{body}"}`},
		{ID: "sec_other", Provider: "custom", Custom: `{"header":"X-Other","template":"{body}"}`},
	} {
		s.Sign = true
		value := "secret"
		if s.ID == "sec_key" {
			value = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
		}
		list = append(list, relay.OpenSecret{SenderSecret: s, Value: relay.NewSecretText(value)})
	}
	return list, nil
}

func (keptSecrets) NoteSigned(context.Context, relay.Actor, int64, relay.SenderSecret) error {
	return nil
}

func (k keptSecrets) SigningSecret(ctx context.Context, _ int64, provider, _, id string, fits func(string) bool) (relay.OpenSecret, error) {
	list, _ := k.OpenSecrets(ctx, 0)
	for _, s := range list {
		if s.Provider == provider && (id == "" || s.ID == id) && fits(s.Value.Reveal()) {
			return s, nil
		}
	}
	return relay.OpenSecret{}, relay.Errorf(relay.CodeNoSigningSecret, "none")
}
