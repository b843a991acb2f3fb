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

// challengePath is the path prefix of HTTP-01 challenges (RFC 8555, section 8.3).
const challengePath = "/.well-known/acme-challenge/"

// pendingChallenge returns the challenge of this process that is pending for a host.
func pendingChallenge(host, kind string) (acme.Challenge, bool) {
	c, ok := certmagic.GetACMEChallenge(host)
	if !ok || c.Type != kind || !strings.EqualFold(c.Identifier.Value, host) {
		return acme.Challenge{}, false
	}
	return c.Challenge, true
}

// challengeCert returns the certificate that answers a TLS-ALPN-01 challenge (RFC 8737),
// nil if none is pending.
func challengeCert(name string) (*tls.Certificate, error) {
	c, ok := pendingChallenge(name, acme.ChallengeTypeTLSALPN01)
	if !ok {
		return nil, nil
	}
	return acmez.TLSALPN01ChallengeCert(c)
}

// Challenge implements Options.Challenge. ok is true only for the path of the challenge
// that is pending for this host, a name in lower case.
func (a *ACME) Challenge(host, path string) (answer string, ok bool) {
	c, ok := pendingChallenge(host, acme.ChallengeTypeHTTP01)
	if !ok || path != c.HTTP01ResourcePath() {
		return "", false
	}
	return c.KeyAuthorization, true
}

// challenge answers a pending HTTP-01 challenge, before the request is routed. It does
// not touch any other request.
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

// serveChallenge does the same on connections that net/http owns.
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
