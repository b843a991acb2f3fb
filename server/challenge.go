package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"relay/wire"
)

// challengePath is the path prefix of HTTP-01 challenges (RFC 8555, section 8.3).
const challengePath = "/.well-known/acme-challenge/"

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
