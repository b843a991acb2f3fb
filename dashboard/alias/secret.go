package alias

import (
	"net/http"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/signature"
)

// addSecret stores the secret of a sender. The typed value is never shown again, even if another field
// has an error.
func (p Pages) addSecret(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	f := page.Posted("secret", r)
	want := relay.SenderSecret{Provider: page.Field(r, "provider"), Path: page.Field(r, "path"), Sign: page.Field(r, "sign") == "on"}
	value := r.PostForm.Get("secret")
	f.Values.Del("secret")
	_, err := p.Accounts.AddSecret(r.Context(), who, a.Name, want, relay.NewSecretText(value))
	return p.settingsOf(a).Finish(w, r, who, f, err, "secret", page.AliasPath(a.Name, "settings")+"?done=secret-added#secrets")
}

func (p Pages) removeSecret(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	err := p.Accounts.RemoveSecret(r.Context(), who, a.Name, r.PathValue("id"))
	return page.SeeOther(w, r, err, page.AliasPath(a.Name, "settings")+"?done=secret-removed#secrets")
}

// BadSignature returns the signature verdict for the row of an event, if the verdict is one that needs
// attention; else "".
func (v Row) BadSignature() string {
	if s := v.Signature; s != nil && (s.Verdict == signature.Invalid || s.Verdict == signature.Expired) {
		return s.Verdict
	}
	return ""
}
