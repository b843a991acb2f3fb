package dashboard

import (
	"errors"
	"net/http"

	"github.com/a-h/templ"

	"relay"
)

func (p *pages) invite(_ http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.invitedAccount(r)
	if err != nil {
		return nil, err
	}
	return invitePage(p.Site.Base.Host, acc.Name, form{name: "invite"}), nil
}

// invitedAccount is whose invitation the address holds.
func (p *pages) invitedAccount(r *http.Request) (relay.Account, error) {
	return p.linkOwner(r, p.Accounts.Invite, errInviteNotFound)
}

var errInviteNotFound = relay.Errorf(relay.CodeNotFound, "this invitation was used, has expired, or does not exist; ask an admin for a new one")

// useInvite registers the key and logs the browser in. A key that is refused leaves
// the invitation as it was.
func (p *pages) useInvite(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.invitedAccount(r)
	if err != nil {
		return nil, err
	}
	if err := p.Limits.Create(relay.Actor{Account: acc.ID}); err != nil {
		return nil, err
	}
	session, _, err := p.Accounts.UseInvite(r.Context(), r.PathValue("token"), r.PostForm.Get("key"), r.RemoteAddr, r.UserAgent())
	if errors.Is(err, relay.ErrNotFound) {
		err = errInviteNotFound
	}
	if err == nil {
		p.startSession(w, r, session)
	}
	return formPage(func(_ *http.Request, _ relay.Actor, f form) (templ.Component, error) {
		return invitePage(p.Site.Base.Host, acc.Name, f), nil
	}).finish(w, r, relay.Actor{}, posted("invite", r), err, "key", "/")
}
