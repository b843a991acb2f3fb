package people

import (
	"context"
	"errors"
	"net/http"

	"github.com/a-h/templ"

	"relay"
	"relay/cookie"
	"relay/dashboard/page"
)

// login shows the account of a login link. Only the button uses the link up, so that
// link previews do not.
func (p pages) login(_ http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.linkOwner(r, p.Accounts.LoginLink, p.loginLinkError())
	return loginPage(acc.Name), err
}

// linkOwner returns the account of the secret in the address of a link; gone is the error if there is
// none.
func (p pages) linkOwner(r *http.Request, owner func(context.Context, string) (relay.Account, error), gone error) (relay.Account, error) {
	account, err := page.LookUpSecret(p.Pages, r, r.PathValue("token"), owner)
	if errors.Is(err, relay.ErrNotFound) {
		err = gone
	}
	return account, err
}

// openSession uses up the link in the address. owner returns the account of the link, use opens the session,
// and gone is the error for an unknown link. openSession sets the cookie of the new session and ends the
// earlier sessions of the browser, so that a browser has at most one.
func (p pages) openSession(w http.ResponseWriter, r *http.Request, owner func(context.Context, string) (relay.Account, error), gone error, use func(secret string) (session string, acc relay.Account, err error)) (relay.Account, error) {
	acc, err := p.linkOwner(r, owner, gone)
	if err == nil {
		err = p.Limits.Create(relay.Actor{Account: acc.ID})
	}
	if err != nil {
		return acc, err
	}
	session, _, err := use(r.PathValue("token"))
	if errors.Is(err, relay.ErrNotFound) {
		err = gone
	}
	if err != nil {
		return acc, err
	}
	for _, old := range cookie.Secrets(p.Site, r) {
		if err := p.Accounts.EndSession(r.Context(), old); err != nil && !errors.Is(err, relay.ErrNotFound) {
			p.Log.Warn("cannot end the old session", "err", err)
		}
	}
	http.SetCookie(w, p.Cookie(session, page.SessionAge))
	return acc, nil
}

// useLogin logs in by the link and redirects to the page that was requested before, to the alias that
// the link names, or to the home page.
func (p pages) useLogin(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.openSession(w, r, p.Accounts.LoginLink, p.loginLinkError(), func(secret string) (string, relay.Account, error) {
		return p.Accounts.UseLoginLink(r.Context(), secret, r.RemoteAddr, r.UserAgent())
	})
	if err != nil {
		return nil, err
	}
	next := "/"
	if name := r.URL.Query().Get("alias"); relay.ValidLabel(name) {
		who := relay.Actor{Account: acc.ID, AccountName: acc.Name, Scopes: relay.ScopeAliasesRead}
		if _, err := p.Accounts.Alias(r.Context(), who, name); err == nil {
			next = page.AliasPath(name)
		}
	}
	if c, err := r.Cookie(p.NextCookie("", 0).Name); err == nil {
		http.SetCookie(w, p.NextCookie("", -1))
		next = p.PageOf(page.LocalPath(c.Value))
	}
	return page.SeeOther(w, r, nil, next)
}

func (p pages) logout(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	for _, secret := range cookie.Secrets(p.Site, r) {
		if err := p.Accounts.EndSession(r.Context(), secret); err != nil && !errors.Is(err, relay.ErrNotFound) {
			return nil, err
		}
	}
	p.Sweep(w, r)
	http.SetCookie(w, p.Cookie("", -1))
	return page.SeeOther(w, r, nil, "/")
}

func (p pages) loginLinkError() error {
	return page.WithTitle(linkUsed, relay.Errorf(relay.CodeNotFound, "this login link was used, has expired, or does not exist; get a new one with: %s", p.LoginCommand()))
}

func (p pages) invite(_ http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.linkOwner(r, p.Accounts.Invite, errInviteNotFound)
	return invitePage(p.Site.Base.Host, acc.Name, page.Form{Name: "invite"}), err
}

// linkUsed is the title of the page about a link that was already used or never existed.
const linkUsed = "This link does not work"

var errInviteNotFound = page.WithTitle(linkUsed, relay.Errorf(relay.CodeNotFound, "this invitation was used, has expired, or does not exist; ask an admin for a new one"))

// useInvite registers the key and logs the browser in. If the key is refused, the invitation stays
// valid.
func (p pages) useInvite(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.openSession(w, r, p.Accounts.Invite, errInviteNotFound, func(secret string) (string, relay.Account, error) {
		return p.Accounts.UseInvite(r.Context(), secret, r.PostForm.Get("key"), r.RemoteAddr, r.UserAgent())
	})
	return page.FormPage(func(_ *http.Request, _ relay.Actor, f page.Form) (templ.Component, error) {
		return invitePage(p.Site.Base.Host, acc.Name, f), nil
	}).Finish(w, r, relay.Actor{}, page.Posted("invite", r), err, "key", "/")
}
