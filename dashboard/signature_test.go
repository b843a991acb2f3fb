package dashboard_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"relay"
)

// TestSignatureOnPages: a secret is added and removed in the settings, the event shows the verdict on its
// signature, and a typed secret can be tried. No page contains the value of a secret.
func TestSignatureOnPages(t *testing.T) {
	r := newFixture(t)
	const value, settings = "the secret of the sender", "/aliases/hook/settings"
	mac := hmac.New(sha256.New, []byte(value))
	mac.Write([]byte(`{"a":1}`))
	id := r.send(post("/hook", `{"a":1}`, "X-GitHub-Event: push", "X-Hub-Signature-256: sha256="+hex.EncodeToString(mac.Sum(nil)))).String()
	var pages strings.Builder
	wants := func(page string, parts ...string) {
		t.Helper()
		pages.WriteString(page)
		for _, part := range parts {
			if !strings.Contains(page, part) {
				t.Errorf("the page lacks %q", part)
			}
		}
	}
	wants(r.get("/events/"+id, 200), `data-verdict="unchecked"`, "Try a secret", "Add the signing secret")
	wants(r.get("/events/"+r.send(post("/hook", `{"a":1}`, "X-GitHub-Event: push")).String(), 200), "there is no signature", "{b} is the body")
	wants(r.submit("/events/"+id+"/verify", url.Values{"secret": {value + "\n"}}, 200), `data-verdict="invalid"`, "without the space")
	wants(r.submit("/events/"+id+"/verify", url.Values{"secret": {value}}, 200), `data-verdict="valid"`)
	wants(r.get("/events/"+id, 200), `data-verdict="unchecked"`)
	custom := r.send(post("/hook", `{"a":1}`, "X-GitHub-Event: push", "X-Shop: "+hex.EncodeToString(mac.Sum(nil)))).String()
	_, err := r.s.AddSecret(t.Context(), relay.System(), "hook", relay.SenderSecret{Provider: "custom", Custom: `{"header":"X-Shop","template":"{body}"}`}, relay.NewSecretText("another one"))
	must(t, err)
	wants(r.submit("/events/"+custom+"/verify", url.Values{"secret": {value}}, 200), `data-verdict="valid"`, "Signature of Custom: valid") // the custom definition was used, and not the scheme of GitHub

	wants(r.submit(settings+"/secrets", url.Values{"provider": {"githup"}, "secret": {value}}, 422), "secret-provider-wrong", "did you mean github")
	wants(r.submit(settings+"/secrets", url.Values{"provider": {"stripe"}, "secret": {value + " "}}, 422), "secret-secret-wrong", "space or a line break")
	r.submit(settings+"/secrets", url.Values{"provider": {"github"}, "secret": {"another one"}}, 200)
	wants(r.get("/events/"+id, 200), `data-verdict="invalid"`, "Compare the secret")
	wants(r.get("/aliases/hook", 200), "invalid signature")
	wants(r.get("/aliases/hook?signature=invalid", 200), id)
	r.submit(settings+"/secrets", url.Values{"provider": {"github"}, "secret": {value}, "path": {"/hook"}, "sign": {"on"}}, 200)
	page := r.get(settings+"?done=secret-added", 200)
	wants(page, "The secret was added", "may sign", "<code>/hook</code>")
	wants(r.get("/events/"+id, 200), `data-verdict="valid"`)
	wants(r.submit("/events/"+id+"/verify", url.Values{}, 200), `data-verdict="valid"`)
	if list := r.get("/aliases/hook", 200); strings.Contains(list, "signature</span>") {
		t.Error("a valid signature has a mark in the list")
	}
	_, rest, _ := strings.Cut(page, `data-secret-id="`)
	secret, _, _ := strings.Cut(rest, `"`)
	r.submit(settings+"/secrets/"+secret+"/remove", url.Values{}, 200)
	if strings.Contains(r.get(settings, 200), secret) {
		t.Error("the secret is still listed")
	}
	if all := pages.String(); strings.Contains(all, value) || strings.Contains(all, "another one") {
		t.Error("a page has the value")
	}
}
