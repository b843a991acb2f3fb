package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"relay"
	"relay/admission"
	"relay/sockets"
)

// Serve serves plain HTTP on ln until Shutdown, after which it returns nil. It closes ln when it
// returns.
func (s *Server) Serve(ln net.Listener) error {
	return s.acceptLoop(ln, nil)
}

// ServeTLS serves HTTP over TLS on ln until Shutdown, after which it returns nil. The ALPN protocols
// depend on the server name: http/1.1 and http/1.0 for alias hosts, also h2 for the base host, and
// acme-tls/1 if cfg has it.
func (s *Server) ServeTLS(ln net.Listener, cfg *tls.Config) error {
	return s.acceptLoop(ln, s.byServerName(cfg))
}

// acceptLoop accepts connections until the listener is closed.
func (s *Server) acceptLoop(ln net.Listener, cfg *tls.Config) error {
	defer func() { _ = ln.Close() }()
	s.baseOnce.Do(func() {
		go func() { _ = s.base.Serve(s.handoff) }()
	})
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, ln)
	}()
	for {
		nc, err := sockets.Accept(ln, s.acceptFailed)
		switch {
		case err == nil:
			s.admit(nc, cfg)
		case s.ctx.Err() != nil || s.isClosed():
			return nil
		default:
			return err
		}
	}
}

// acceptFailed counts and logs a failed accept. If err reports a shortage of descriptors or memory, it closes
// some idle connections, so that a later accept can succeed.
func (s *Server) acceptFailed(err error, retryIn time.Duration) {
	s.met.failed.Inc()
	evicted := s.front.Shed(err)
	if suppressed, ok := s.acceptLog.allow(); ok {
		s.log.Warn("connections cannot be accepted; raise the limit of open files (LimitNOFILE=, ulimit -n)",
			"err", err, "retry_in", retryIn, "idle_closed", evicted, "suppressed", suppressed)
	}
}

// admit takes a slot for a connection and starts to serve it, or refuses it. Every
// connection passes here before its first byte is read.
func (s *Server) admit(nc net.Conn, cfg *tls.Config) {
	s.met.accepted.Inc()
	sock := &stallConn{Conn: nc, stall: s.opt.StallTimeout}
	c := &conn{srv: s, sock: sock, peer: newPeer(nc), net: sock, tls: cfg, from: sockets.AddrOf(nc.RemoteAddr())}
	c.peer.limitUnsent()
	if bound, ok := sock.acquire(s, c.from.Addr()); !ok {
		s.rejectConn(c, bound)
		return
	}
	s.start(c, (*conn).serve)
}

const (
	maxConnsDefault = 20000
	minPerSource    = 2000 // an alias is promised 2,000 requests in progress, and one source may send all of them
)

// httpLimits returns the limits of connections. The parameters limit and limitPerSource are the options
// MaxConns and MaxConnsPerSource: 0 is the default, and a negative number is no limit. The default of
// MaxConns is at most the parameter most.
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

// acquire takes a slot for c, which counts as idle at first. At a limit, it closes an idle connection and
// takes the slot of that connection; ok is false if none is idle. bound names the limit that was reached, ""
// = none. Connections from loopback have no source, so that the limit per source does not apply to them.
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

// evictable is the socket of a connection that may be closed in favor of a new one.
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

// start serves a connection in a goroutine, and closes it at the end unless net/http has taken it
// over. It returns false if the server is closed; then the connection is closed too.
//
// A panic ends only this connection, so that one request cannot end all other tunnels and requests.
// The connection is reset, so that its caller cannot mistake a partial response for a complete one.
func (s *Server) start(c *conn, serve func(*conn)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.sock.Close()
		return false
	}
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer func() {
			if v := recover(); v != nil {
				s.met.panics.Inc()
				s.log.Error("panic while serving a connection", "from", c.from, "panic", v, "stack", string(debug.Stack()))
				c.Abort()
			}
			if !c.handed {
				_ = c.sock.Close()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
		}()
		serve(c)
	}()
	return true
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

const (
	maxRejectors       = 64          // largest number of answerOverloaded goroutines
	rejectWriteTimeout = time.Second // time limit of writing the answer; generous, because a busy machine may run the goroutine late
)

// rejectConn ends a connection that gets no slot: with 503 overloaded, or by closing it if the answer would
// need a TLS handshake first. Up to maxRejectors connections get the answer after the first bytes of their
// request were read. The others get it at once, without a goroutine. If such a connection is closed while
// bytes of its request are unread, the system resets it, and the caller may lose the answer.
func (s *Server) rejectConn(c *conn, bound string) {
	s.met.refused[bound].Inc()
	if suppressed, ok := s.rejectLog.allow(); ok {
		s.log.Warn("connection refused: limit reached and no idle connection to close",
			"bound", bound, "from", c.from, "suppressed", suppressed)
	}
	if c.tls != nil {
		_ = c.sock.Close()
		return
	}
	select {
	case s.rejectSlots <- struct{}{}:
		if !s.start(c, (*conn).answerOverloaded) {
			<-s.rejectSlots
		}
	default:
		// This write does not block, because the answer fits into the empty send buffer.
		_ = c.sock.SetWriteDeadline(time.Now().Add(rejectWriteTimeout))
		_, err := c.sock.Write(encodeAnswer(&relay.Answer{Error: errOverloaded}, requestID(), false, false))
		_ = c.sock.Close()
		c.accessOverloaded(err)
	}
}

// answerOverloaded answers after the first bytes of the request have arrived, because some clients treat an
// answer that comes before their request as an error. It then frees its place in rejectSlots.
func (c *conn) answerOverloaded() {
	defer func() { <-c.srv.rejectSlots }()
	c.rewind()
	c.deadline(c.srv.rejectReadTimeout)
	n, err := c.net.Read(c.buf)
	if n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	c.w = n
	c.phase.Store(phaseLinger)
	isHead := bytes.HasPrefix(c.buf[:n], []byte("HEAD "))
	_, err = c.Write(encodeAnswer(&relay.Answer{Error: errOverloaded}, requestID(), isHead, false))
	c.accessOverloaded(err)
	if err == nil {
		c.closeOrderly()
	}
}

// accessOverloaded reports a request that is refused with 503 overloaded to the access log. The argument err is
// the error of writing the answer; if there was one, the reported status is 0, because the caller got no answer.
func (c *conn) accessOverloaded(err error) {
	a := Access{Status: relay.Status(errOverloaded.Code), Code: errOverloaded.Code}
	if err != nil {
		a.Status = 0
	}
	head := c.buf[c.r:c.w]
	c.access(c.routeBad(head), head, a)
}

// ConnStats are the counts of connections of the HTTP and TLS listeners, for /debug/stats.
type ConnStats struct {
	Connections  int   `json:"connections"`
	Base         int   `json:"base"`         // connections that net/http serves the base site on
	Sources      int   `json:"sources"`      // sources of the connections, without loopback
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
