package dashboard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"

	"relay"
)

const sessionAge = 30 * 24 * 3600 // seconds

// Bounds of what a request with more than one session costs.
const (
	maxSessionCookies = 4 // that are looked up
	sweptPaths        = 6
	sweptDomains      = 3
)

// cookieName is bound to the host by its prefix where the base site is https, so
// that a page on an alias host cannot set it (RFC 6265bis, section 4.1.3.2).
func (p *pages) cookieName() string {
	if p.secure() {
		return "__Host-relay_session"
	}
	return "relay_session"
}

func (p *pages) secure() bool { return p.Site.Base.Scheme == "https" }

func (p *pages) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: p.cookieName(), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: p.secure(), SameSite: http.SameSiteLaxMode,
	}
}

// sessionSecrets are the secrets that came with a request, each once.
func (p *pages) sessionSecrets(r *http.Request) []string {
	var secrets []string
	for _, c := range r.CookiesNamed(p.cookieName()) {
		if c.Value != "" && !slices.Contains(secrets, c.Value) && len(secrets) < maxSessionCookies {
			secrets = append(secrets, c.Value)
		}
	}
	return secrets
}

// errTwoSessions: without https a page on an alias host may set a cookie for this
// site too, and nobody is to act by a session that somebody else chose.
var errTwoSessions = relay.Errorf(relay.CodeUnauthorized, "this request carried sessions of two accounts; a page on an alias host may have set one of them. Cookies set by other hosts were removed: try again. If this happens again, clear the cookies of this site and log in again")

// errTooManyGuesses is the code of what Limits.Try refuses.
var errTooManyGuesses = relay.Errorf(relay.CodeRateLimited, "")

// currentSession is who is signed in; ok is false for anybody else.
// Secrets of ended or unknown sessions are ignored, so that a page that can add a cookie
// to a request (see errTwoSessions) cannot log anybody out.
func (p *pages) currentSession(r *http.Request) (who relay.Actor, ok bool, err error) {
	for _, secret := range p.sessionSecrets(r) {
		found, e := lookUpSecret(p, r, secret, func(ctx context.Context) (relay.Actor, error) { return p.Accounts.SessionOwner(ctx, secret) })
		switch {
		case errors.Is(e, relay.ErrNotFound): // it is over, or never was
		case e != nil:
			err = e
		case ok && found.Account != who.Account:
			return relay.Actor{}, false, errTwoSessions
		case !ok:
			who, ok = found, true
		}
	}
	if ok && errors.Is(err, errTooManyGuesses) {
		err = nil // what was not looked up is no session of this person
	}
	return who, ok && err == nil, err
}

// lookUpSecret looks up a secret of a request, unless too many wrong ones came from its
// source.
func lookUpSecret[T any](p *pages, r *http.Request, secret string, look func(context.Context) (T, error)) (T, error) {
	if err := p.Limits.CheckSecret(r.RemoteAddr, secret); err != nil {
		var none T
		return none, err
	}
	found, err := look(r.Context())
	if err == nil || errors.Is(err, relay.ErrNotFound) {
		p.Limits.RecordSecret(r.RemoteAddr, secret, err == nil)
	}
	return found, err
}

// startSession gives the browser the cookie of a new session, and ends those that it
// had: one browser has one login.
func (p *pages) startSession(w http.ResponseWriter, r *http.Request, secret string) {
	for _, old := range p.sessionSecrets(r) {
		if err := p.Accounts.EndSession(r.Context(), old); err != nil && !errors.Is(err, relay.ErrNotFound) {
			p.Log.Warn("old session not ended", "error", err)
		}
	}
	http.SetCookie(w, p.cookie(secret, sessionAge))
}

// sweep removes session cookies that another host of the same domain set (ADR 0018).
// Unlike our own they have a Domain, and a path that is a prefix of the requested one.
func (p *pages) sweep(w http.ResponseWriter, r *http.Request) {
	if p.secure() || len(p.sessionSecrets(r)) < 2 {
		return
	}
	for _, domain := range parentDomains(p.Site.Base.Hostname()) {
		at := path.Clean(r.URL.Path)
		for range sweptPaths {
			c := p.cookie("", -1)
			c.Domain, c.Path = domain, at
			http.SetCookie(w, c)
			at = path.Dir(at)
		}
	}
}

// parentDomains are the domains of a host whose cookies it gets, itself first; none
// for an address, and none of one label: no browser lets anybody set those.
func parentDomains(host string) []string {
	var list []string
	if net.ParseIP(host) != nil {
		return nil
	}
	for strings.Contains(host, ".") && len(list) < sweptDomains {
		list = append(list, host)
		_, host, _ = strings.Cut(host, ".")
	}
	return list
}
