package event

import (
	"net/http"
	"slices"

	"github.com/a-h/templ"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// secretSenderOf returns the sender of an event if the request contains a secret of that sender, and the viewer
// can store the secret and has not stored it yet; otherwise "".
func (p pages) secretSenderOf(r *http.Request, who relay.Actor, e *relay.Event, a *relay.Alias) string {
	sender, secret := record.SentSecret(e)
	if sender == "" || a.Owner != who.Account {
		return ""
	}
	kept, err := p.Accounts.OpenSecrets(r.Context(), a.ID)
	if err != nil || slices.ContainsFunc(kept, func(k relay.OpenSecret) bool { return k.Provider == sender && k.Value == secret }) {
		// After an error the page is shown without the button.
		return ""
	}
	return sender
}

// keepSecret stores the secret that the request of an event contains.
func (p pages) keepSecret(w http.ResponseWriter, r *http.Request, who relay.Actor, id relay.ID) (templ.Component, error) {
	e, err := p.Events.Request(r.Context(), who, id, maxVerified)
	if err != nil {
		return nil, err
	}
	sender, secret := record.SentSecret(e)
	if sender == "" {
		return nil, relay.Errorf(relay.CodeValidationFailed, "this request contains no secret")
	}
	_, err = p.Accounts.AddSecret(r.Context(), who, e.Alias, relay.SenderSecret{Provider: sender}, secret)
	return page.SeeOther(w, r, err, page.AliasPath(e.Alias, "settings")+"?done=secret-added#secrets")
}
