package server

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"relay/wire"
)

// challengePath is where a CA asks (RFC 8555, section 8.3).
const challengePath = "/.well-known/acme-challenge/"

// pending gives the challenge of this process that a CA may ask a host about now.
func pending(host, kind string) (acme.Challenge, bool) {
	c, ok := certmagic.GetACMEChallenge(host)
	if !ok || c.Type != kind || !strings.EqualFold(c.Identifier.Value, host) {
		return acme.Challenge{}, false
	}
	return c.Challenge, true
}

// challengeCert is the answer to a CA that knocks by TLS (RFC 8737); none where
// nothing was ordered.
func challengeCert(name string) (*tls.Certificate, error) {
	c, ok := pending(name, acme.ChallengeTypeTLSALPN01)
	if !ok {
		return nil, nil
	}
	return acmez.TLSALPN01ChallengeCert(c)
}

// Challenge is for Options.Challenge: the answer to a CA that asks a host, a name in
// lower case, for a path. ok is false for every path but that of the challenge that
// is pending for this very host.
func (a *ACME) Challenge(host, path string) (answer string, ok bool) {
	c, ok := pending(host, acme.ChallengeTypeHTTP01)
	if !ok || path != c.HTTP01ResourcePath() {
		return "", false
	}
	return c.KeyAuthorization, true
}

// challenge answers a CA on plain HTTP, before everything else. What is not asked by
// it belongs to the alias, untouched.
func (c *conn) challenge(h *wire.Head) bool {
	ask := c.srv.opt.Challenge
	if ask == nil || c.secure || !bytes.HasPrefix(h.Target, []byte(challengePath)) || !bytes.Equal(h.Method, []byte("GET")) {
		return false
	}
	host, ok := splitHost(string(h.Host))
	if !ok {
		return false
	}
	answer, ok := ask(host, string(h.Target))
	if !ok {
		return false
	}
	c.phase.Store(phaseLinger)
	_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(answer), answer)
	c.linger = err == nil
	return true
}

// serveChallenge is challenge for connections that net/http owns.
func (s *Server) serveChallenge(w http.ResponseWriter, r *http.Request) bool {
	if s.opt.Challenge == nil || r.TLS != nil || r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, challengePath) {
		return false
	}
	host, ok := splitHost(r.Host)
	if !ok {
		return false
	}
	answer, ok := s.opt.Challenge(host, r.URL.Path)
	if ok {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, answer)
	}
	return ok
}
