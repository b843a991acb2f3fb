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

// A secret with the provider custom has a definition, which is checked and shown; null is none.
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

// customSecret has one secret with a definition.
type customSecret struct{ oneSecret }

func (customSecret) SigningSecret(_ context.Context, _ relay.Actor, _ int64, provider, _, _ string) (relay.OpenSecret, error) {
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
	if !strings.Contains(string(raw), "\r\nX-Shop: 88aab3ede8d3adf94d26ab90d3bafd4a2083070c3bcce9c014ee04a443847c0b\r\n") || p.SignedBy != "sec_c" { // of openssl
		t.Errorf("%s, %+v", raw, p)
	}
}
