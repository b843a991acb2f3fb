package dashboard

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"relay"
)

const sessionAge = 30 * 24 * 3600 // seconds

// cookieName is bound to the host by its prefix where the base site is https, so
// that a page on an alias host cannot set it (RFC 6265bis, section 4.1.3.2).
func (p *pages) cookieName() string {
	if p.secure() {
		return "__Host-relay_session"
	}
	return "relay_session"
}

func (p *pages) secure() bool { return p.Site.Base.Scheme == "https" }

// login shows whose link it is; only the button uses it up, so that previews of
// the link do not.
func (p *pages) login(_ http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.Accounts.LoginLink(r.Context(), r.PathValue("token"))
	if errors.Is(err, relay.ErrNotFound) {
		return nil, p.deadLink()
	}
	if err != nil {
		return nil, err
	}
	return login(acc.Name), nil
}

func (p *pages) useLogin(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	session, _, err := p.Accounts.UseLoginLink(r.Context(), r.PathValue("token"), r.RemoteAddr, r.UserAgent())
	if errors.Is(err, relay.ErrNotFound) {
		return nil, p.deadLink()
	}
	if err != nil {
		return nil, err
	}
	http.SetCookie(w, p.cookie(session, sessionAge))
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

// localPath reads a remembered page: a path on this site, or else home.
func localPath(escaped string) string {
	path, err := url.QueryUnescape(escaped)
	if err != nil || len(path) > 2048 || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}

func (p *pages) logout(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	if c, err := r.Cookie(p.cookieName()); err == nil {
		if err := p.Accounts.EndSession(r.Context(), c.Value); err != nil && !errors.Is(err, relay.ErrNotFound) {
			return nil, err
		}
		p.known.forget(c.Value)
	}
	http.SetCookie(w, p.cookie("", -1))
	return seeOther(w, r, "/")
}

func (p *pages) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: p.cookieName(), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: p.secure(), SameSite: http.SameSiteLaxMode,
	}
}

func (p *pages) deadLink() error {
	return relay.Errorf(relay.CodeNotFound, "this login link was used, has run out, or never was; get a new one with: %s", p.loginCommand())
}
