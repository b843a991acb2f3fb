package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"relay"
)

// login shows the account of a login link. Only the button uses the link up, so that
// link previews do not.
func (p *pages) login(_ http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.loginLink(r)
	if err != nil {
		return nil, err
	}
	return loginPage(acc.Name), nil
}

// loginLink is whose link the address holds.
func (p *pages) loginLink(r *http.Request) (relay.Account, error) {
	return p.linkOwner(r, p.Accounts.LoginLink, p.loginLinkError())
}

// linkOwner is whose secret the address of a link holds; gone is the error where it is
// nobody's.
func (p *pages) linkOwner(r *http.Request, owner func(context.Context, string) (relay.Account, error), gone error) (relay.Account, error) {
	secret := r.PathValue("token")
	account, err := lookUpSecret(p, r, secret, func(ctx context.Context) (relay.Account, error) { return owner(ctx, secret) })
	if errors.Is(err, relay.ErrNotFound) {
		err = gone
	}
	return account, err
}

func (p *pages) useLogin(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.loginLink(r)
	if err != nil {
		return nil, err
	}
	if err := p.Limits.Create(relay.Actor{Account: acc.ID}); err != nil {
		return nil, err
	}
	session, _, err := p.Accounts.UseLoginLink(r.Context(), r.PathValue("token"), r.RemoteAddr, r.UserAgent())
	if errors.Is(err, relay.ErrNotFound) {
		return nil, p.loginLinkError()
	}
	if err != nil {
		return nil, err
	}
	p.startSession(w, r, session)
	next := "/"
	if c, err := r.Cookie(p.nextCookie("", 0).Name); err == nil {
		http.SetCookie(w, p.nextCookie("", -1))
		next = localPath(c.Value)
	}
	return seeOther(w, r, next)
}

const nextAge = 15 * 60 // seconds, as long as a login link is good for

// nextCookie remembers the page that somebody wanted before logging in.
func (p *pages) nextCookie(path string, age int) *http.Cookie {
	c := p.cookie(url.QueryEscape(path), age)
	c.Name = strings.TrimSuffix(c.Name, "session") + "next"
	return c
}

func (p *pages) logout(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	for _, secret := range p.Site.SessionSecrets(r) {
		if err := p.Accounts.EndSession(r.Context(), secret); err != nil && !errors.Is(err, relay.ErrNotFound) {
			return nil, err
		}
	}
	p.sweep(w, r)
	http.SetCookie(w, p.cookie("", -1))
	return seeOther(w, r, "/")
}

func (p *pages) loginLinkError() error {
	return relay.Errorf(relay.CodeNotFound, "this login link was used, has expired, or does not exist; get a new one with: %s", p.loginCommand())
}

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
