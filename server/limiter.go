package server

import (
	"net"
	"net/netip"

	"relay/admission"
	"relay/sockets"
)

const (
	maxConnsDefault = 20000
	minPerSource    = 2000 // so many requests in flight are promised to an alias, and one source may send them all
)

// httpLimits takes the limits of Options, where 0 is the default and a negative number is none,
// for a front that may have at most so many connections.
func httpLimits(limit, limitPerSource, most int) admission.Limits {
	if limit == 0 {
		limit = min(most, maxConnsDefault)
	}
	if limitPerSource == 0 {
		limitPerSource = maxConnsDefault / 4
		if limit > 0 {
			limitPerSource = min(limit, max(limit/4, minPerSource))
		}
	}
	return admission.Limits{Total: max(limit, 0), PerSource: max(limitPerSource, 0)}
}

// acquire takes a place for the connection, which is idle at first, and ends the one that had it.
// bound says why there was none if ok is false. A source is an IPv4 address or an IPv6 /64;
// connections from loopback belong to no source.
func (c *stallConn) acquire(s *Server, from netip.Addr) (bound string, ok bool) {
	c.slot.Conn = evictable{c.Conn, s}
	if !from.IsLoopback() {
		c.slot.Source = sockets.SourceOf(from)
	}
	c.slot.Shared = !c.slot.Source.IsValid()
	evicted, bound := s.front.Acquire(&c.slot, admission.Idle)
	if evicted != nil {
		evicted.Conn.Evicted(bound)
	}
	if ok = bound == "" || evicted != nil; !ok {
		s.refused.Add(1)
	}
	return bound, ok
}

// evictable is the socket of a connection that may have to give way.
type evictable struct {
	net.Conn
	srv *Server
}

// Evicted implements admission.Conn.
func (e evictable) Evicted(reason string) {
	e.srv.evicted.Add(1)
	e.srv.met.evicted.count(reason)
	_ = e.Close()
}

// ConnStats are the connections of the HTTP and TLS listeners, for /debug/stats.
type ConnStats struct {
	Connections  int   `json:"connections"`
	Base         int   `json:"base"`         // connections that net/http serves the base site on
	Sources      int   `json:"sources"`      // without loopback
	Max          int   `json:"max"`          // 0 = no bound
	MaxPerSource int   `json:"maxPerSource"` // 0 = no bound
	Refused      int64 `json:"refused"`      // since the start
	Evicted      int64 `json:"evicted"`      // since the start: closed while idle to make way for others
}

// Stats counts the connections.
func (s *Server) Stats() ConnStats {
	n := s.front.Counts()
	x := ConnStats{
		Connections: n.All(), Base: int(s.baseConns.Load()), Sources: s.front.Sources(),
		Refused: s.refused.Load(), Evicted: s.evicted.Load(),
	}
	x.Max, x.MaxPerSource = s.front.Limits()
	return x
}
