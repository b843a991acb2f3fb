package server

import (
	"net/http"
	"strings"
)

// hsts has browsers come by TLS for half a year. It says nothing of subdomains:
// these may be aliases, whose owners decide for themselves, or not ours at all.
const hsts = "max-age=15552000"

// wall sets what every answer of the base site says to browsers. What a page needs
// else, as its own content security policy, it sets over these.
func (s *Server) wall(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	if s.isolates() {
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
	}
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	if s.secureSite() {
		h.Set("Strict-Transport-Security", hsts)
	}
}

// secureSite tells whether people reach the base host by https alone. On localhost
// it is not so, whatever the base URL says: other programs have ports there too.
func (s *Server) secureSite() bool {
	return s.opt.Site.Base.Scheme == "https" && !isLocal(s.hosts.base)
}

// isolates tells whether browsers heed Cross-Origin-Opener-Policy at the base URL.
// Elsewhere they ignore it, and say so in the console as an error.
func (s *Server) isolates() bool {
	return s.opt.Site.Base.Scheme == "https" || isLocal(s.hosts.base)
}

// isLocal tells whether a name, without port and brackets, is one of those that
// browsers take to be this machine.
func isLocal(name string) bool {
	return isLoopbackName(name) || strings.HasSuffix(name, ".localhost")
}
