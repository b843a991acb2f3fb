package page

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/a-h/templ"

	"relay/cookie"
)

// loginRequired shows how to log in, and remembers the requested page.
func (p *Pages) loginRequired(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	if Partial(r) || p.data[r.Pattern] {
		return WithStatus{errorFragment(http.StatusUnauthorized, "you are logged out; log in again"), http.StatusUnauthorized}, nil
	}
	status := http.StatusOK
	if r.URL.Path != "/" {
		status = http.StatusUnauthorized
		p.RememberPage(w, r)
	}
	return WithStatus{loginHelpPage(p.LoginCommand()), status}, nil
}

// RememberPage remembers the page that a visitor asked for before logging in. It ignores requests that
// the script of a page makes.
func (p *Pages) RememberPage(w http.ResponseWriter, r *http.Request) {
	mode := r.Header.Get("Sec-Fetch-Mode") // some clients do not send this header
	if r.Method == http.MethodGet && !Partial(r) && p.isPage(r.Pattern) && (mode == "" || mode == "navigate") {
		http.SetCookie(w, p.NextCookie(r.URL.RequestURI(), nextAge))
	}
}

// referer returns the page of this site that a request comes from, or else the home page.
func referer(r *http.Request) string {
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		return LocalPath(url.QueryEscape(from.RequestURI()))
	}
	return "/"
}

// PageOf returns an address of this site if it is that of a page, else the result of pageAbove.
func (p *Pages) PageOf(address string) string {
	if u, err := url.Parse(address); err == nil && !p.isPage(p.pattern(http.MethodGet, u.Path)) {
		return p.pageAbove(u.Path)
	}
	return address
}

// SessionAge is the time for which a browser keeps the cookie of a session, in seconds.
const SessionAge = 30 * 24 * 3600

// Largest numbers of paths and of domains for which Sweep removes cookies in one answer.
const (
	sweptPaths   = 6
	sweptDomains = 3
)

// Secure reports whether the pages are reached over TLS.
func (p *Pages) Secure() bool { return p.Site.Base.Scheme == "https" }

// Cookie returns the cookie that holds a session for age seconds; a negative age removes it.
func (p *Pages) Cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: cookie.Name(p.Site), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: p.Secure(), SameSite: http.SameSiteLaxMode,
	}
}

// LookUpSecret looks up a secret of a request, unless too many wrong secrets came from the same source.
func LookUpSecret[T any](p *Pages, r *http.Request, secret string, look func(ctx context.Context, secret string) (T, error)) (found T, err error) {
	err = p.Limits.LookUpSecret(r.RemoteAddr, secret, func() (err error) {
		found, err = look(r.Context(), secret)
		return err
	})
	return found, err
}

// Sweep removes session cookies that another host of the same domain has set (ADR 0018). Unlike the
// cookies of the dashboard, these have a Domain, and a path that is a prefix of the requested one.
func (p *Pages) Sweep(w http.ResponseWriter, r *http.Request) {
	domain := p.Site.Base.Hostname()
	if p.Secure() || len(cookie.Secrets(p.Site, r)) < 2 || net.ParseIP(domain) != nil {
		return
	}
	for range sweptDomains {
		if !strings.Contains(domain, ".") {
			// Browsers accept no cookie for a Domain of one label.
			return
		}
		at := path.Clean(r.URL.Path)
		for range sweptPaths {
			c := p.Cookie("", -1)
			c.Domain, c.Path = domain, at
			http.SetCookie(w, c)
			at = path.Dir(at)
		}
		_, domain, _ = strings.Cut(domain, ".")
	}
}

// nextAge is the lifetime of the cookie of NextCookie in seconds. It is as long as the lifetime of a login
// link.
const nextAge = 15 * 60

// NextCookie returns the cookie that remembers the page that a visitor asked for before logging in.
func (p *Pages) NextCookie(path string, age int) *http.Cookie {
	c := p.Cookie(url.QueryEscape(path), age)
	c.Name = strings.TrimSuffix(c.Name, "session") + "next"
	return c
}
