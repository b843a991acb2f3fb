package server

import (
	"cmp"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"relay"
	"relay/wire"
)

// Access is an entry of the access log: a request that has ended, to any host except the base host. It
// contains nothing that is usually secret: no query, no header, no body.
type Access struct {
	Arrived      time.Time // when the first byte of the request arrived
	Alias        string    // label of the alias host; "" = unknown, or not the host of an alias
	From         netip.Addr
	TLS          bool
	Method, Path string
	Status       int    // status that the caller got; 0 = none
	Code         string // code of a relay-made error
	Event        relay.ID
}

// maxAccessPath is the largest number of bytes of a path in Access.
const maxAccessPath = 512

// access reports a request of this connection to the access log. head holds the bytes of the request's head
// that have arrived. access leaves out requests to the base site.
func (c *conn) access(to route, head []byte, a Access) {
	if c.srv.opt.Access == nil || to.kind == hostBase {
		return
	}
	a.Arrived, a.Alias, a.From, a.TLS = c.arrived, cmp.Or(to.label, c.sni.label), c.from.Addr(), c.secure || c.srv.opt.TLSInFront
	if a.Arrived.IsZero() {
		a.Arrived = time.Now()
	}
	a.Method, a.Path = methodAndPath(head)
	c.srv.opt.Access(a)
}

// accessOfBase reports a request that net/http has read to the access log, unless its Host line names the
// base host.
func (s *Server) accessOfBase(r *http.Request, to route, status int, code string, arrived time.Time) {
	if s.opt.Access == nil || to.kind == hostBase {
		return
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	path := r.URL.EscapedPath()
	s.opt.Access(Access{
		Arrived: arrived, Alias: to.label, From: from.Addr(), TLS: r.TLS != nil || s.opt.TLSInFront, Method: r.Method,
		Path: path[:min(len(path), maxAccessPath)], Status: status, Code: code,
	})
}

// methodAndPath reads the first line of a head. It leaves out the query, and the authority of a target in
// absolute form, which may hold a password.
func methodAndPath(head []byte) (method, path string) {
	m, target, _ := wire.StartLine(head)
	path = string(wire.ShownTarget(target))
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path = cmp.Or(path[:end], "/")
	}
	return string(m[:min(len(m), 32)]), path[:min(len(path), maxAccessPath)]
}
