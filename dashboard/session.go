package dashboard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path"
	"strings"

	"relay"
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
		Name: p.Site.SessionCookie(), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: p.secure(), SameSite: http.SameSiteLaxMode,
	}
}

// currentSession is who is signed in; ok is false for anybody else.
func (p *pages) currentSession(r *http.Request) (who relay.Actor, ok bool, err error) {
	who, err = relay.SessionActor(p.Site.SessionSecrets(r), func(secret string) (relay.Actor, error) {
		return lookUpSecret(p, r, secret, func(ctx context.Context) (relay.Actor, error) { return p.Accounts.SessionOwner(ctx, secret) })
	})
	if errors.Is(err, relay.ErrNotFound) {
		return who, false, nil
	}
	return who, err == nil, err
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
	for _, old := range p.Site.SessionSecrets(r) {
		if err := p.Accounts.EndSession(r.Context(), old); err != nil && !errors.Is(err, relay.ErrNotFound) {
			p.Log.Warn("old session not ended", "error", err)
		}
	}
	http.SetCookie(w, p.cookie(secret, sessionAge))
}

// sweep removes session cookies that another host of the same domain set (ADR 0018).
// Unlike our own they have a Domain, and a path that is a prefix of the requested one.
func (p *pages) sweep(w http.ResponseWriter, r *http.Request) {
	if p.secure() || len(p.Site.SessionSecrets(r)) < 2 {
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
