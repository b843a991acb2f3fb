package dashboard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/cookie"
)

const sessionAge = 30 * 24 * 3600 // seconds

// Bounds of what a request with more than one session costs.
const (
	sweptPaths   = 6
	sweptDomains = 3
)

func (p *pages) secure() bool { return p.Site.Base.Scheme == "https" }

func (p *pages) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: cookie.Name(p.Site), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: p.secure(), SameSite: http.SameSiteLaxMode,
	}
}

// lookUpSecret looks up a secret of a request, unless too many wrong ones came from its
// source.
func lookUpSecret[T any](p *pages, r *http.Request, secret string, look func(ctx context.Context, secret string) (T, error)) (found T, err error) {
	err = p.Limits.LookUpSecret(r.RemoteAddr, secret, func() (err error) {
		found, err = look(r.Context(), secret)
		return err
	})
	return found, err
}

// sweep removes session cookies that another host of the same domain set (ADR 0018).
// Unlike our own they have a Domain, and a path that is a prefix of the requested one.
func (p *pages) sweep(w http.ResponseWriter, r *http.Request) {
	domain := p.Site.Base.Hostname()
	if p.secure() || len(cookie.Secrets(p.Site, r)) < 2 || net.ParseIP(domain) != nil {
		return
	}
	for range sweptDomains {
		if !strings.Contains(domain, ".") {
			return // no browser lets anybody set cookies of one label
		}
		at := path.Clean(r.URL.Path)
		for range sweptPaths {
			c := p.cookie("", -1)
			c.Domain, c.Path = domain, at
			http.SetCookie(w, c)
			at = path.Dir(at)
		}
		_, domain, _ = strings.Cut(domain, ".")
	}
}

// login shows the account of a login link. Only the button uses the link up, so that
// link previews do not.
func (p *pages) login(_ http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.linkOwner(r, p.Accounts.LoginLink, p.loginLinkError())
	return loginPage(acc.Name), err
}

// linkOwner is whose secret the address of a link holds; gone is the error where it is
// nobody's.
func (p *pages) linkOwner(r *http.Request, owner func(context.Context, string) (relay.Account, error), gone error) (relay.Account, error) {
	account, err := lookUpSecret(p, r, r.PathValue("token"), owner)
	if errors.Is(err, relay.ErrNotFound) {
		err = gone
	}
	return account, err
}

// openSession uses up the link in the address: owner tells whose it is, use opens the
// session, and gone is the error where the link is nobody's. The browser gets the cookie of
// the session, and the sessions that it had end: one browser has one login.
func (p *pages) openSession(w http.ResponseWriter, r *http.Request, owner func(context.Context, string) (relay.Account, error), gone error, use func(secret string) (session string, acc relay.Account, err error)) (relay.Account, error) {
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
			p.Log.Warn("old session not ended", "error", err)
		}
	}
	http.SetCookie(w, p.cookie(session, sessionAge))
	return acc, nil
}

func (p *pages) useLogin(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	_, err := p.openSession(w, r, p.Accounts.LoginLink, p.loginLinkError(), func(secret string) (string, relay.Account, error) {
		return p.Accounts.UseLoginLink(r.Context(), secret, r.RemoteAddr, r.UserAgent())
	})
	if err != nil {
		return nil, err
	}
	next := "/"
	if c, err := r.Cookie(p.nextCookie("", 0).Name); err == nil {
		http.SetCookie(w, p.nextCookie("", -1))
		next = p.pageOf(localPath(c.Value))
	}
	return seeOther(w, r, nil, next)
}

const nextAge = 15 * 60 // seconds, as long as a login link is good for

// nextCookie remembers the page that somebody wanted before logging in.
func (p *pages) nextCookie(path string, age int) *http.Cookie {
	c := p.cookie(url.QueryEscape(path), age)
	c.Name = strings.TrimSuffix(c.Name, "session") + "next"
	return c
}

func (p *pages) logout(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	for _, secret := range cookie.Secrets(p.Site, r) {
		if err := p.Accounts.EndSession(r.Context(), secret); err != nil && !errors.Is(err, relay.ErrNotFound) {
			return nil, err
		}
	}
	p.sweep(w, r)
	http.SetCookie(w, p.cookie("", -1))
	return seeOther(w, r, nil, "/")
}

func (p *pages) loginLinkError() error {
	return relay.Errorf(relay.CodeNotFound, "this login link was used, has expired, or does not exist; get a new one with: %s", p.loginCommand())
}

func (p *pages) invite(_ http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.linkOwner(r, p.Accounts.Invite, errInviteNotFound)
	return invitePage(p.Site.Base.Host, acc.Name, form{name: "invite"}), err
}

var errInviteNotFound = relay.Errorf(relay.CodeNotFound, "this invitation was used, has expired, or does not exist; ask an admin for a new one")

// useInvite registers the key and logs the browser in. A key that is refused leaves
// the invitation as it was.
func (p *pages) useInvite(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.openSession(w, r, p.Accounts.Invite, errInviteNotFound, func(secret string) (string, relay.Account, error) {
		return p.Accounts.UseInvite(r.Context(), secret, r.PostForm.Get("key"), r.RemoteAddr, r.UserAgent())
	})
	return formPage(func(_ *http.Request, _ relay.Actor, f form) (templ.Component, error) {
		return invitePage(p.Site.Base.Host, acc.Name, f), nil
	}).finish(w, r, relay.Actor{}, posted("invite", r), err, "key", "/")
}
