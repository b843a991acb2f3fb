package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"relay"
)

// Serve answers plain HTTP on ln until Shutdown, which makes it return nil. ln is
// closed when it returns.
func (s *Server) Serve(ln net.Listener) error {
	return s.serve(ln, nil)
}

// ServeTLS answers HTTP over TLS on ln until Shutdown, which makes it return nil.
// The protocols offered are chosen by server name: alias hosts get http/1.1 only,
// the base host h2 as well; acme-tls/1 stays where cfg has it.
func (s *Server) ServeTLS(ln net.Listener, cfg *tls.Config) error {
	return s.serve(ln, s.byServerName(cfg))
}

// serve is the accept loop. A listener that fails for want of files or memory is
// asked again after a pause.
func (s *Server) serve(ln net.Listener, cfg *tls.Config) error {
	defer func() { _ = ln.Close() }()
	if !s.listen(ln) {
		return nil
	}
	defer s.forget(ln)
	var pause time.Duration
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			s.admit(nc, cfg)
		case s.ctx.Err() != nil || s.isClosed():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("accept", "err", err, "again", pause)
			if !s.wait(pause) {
				return nil
			}
		}
	}
}

// admit decides whether a connection may stay and starts to serve it. It is the one
// place where every connection passes before its first byte is read: what bounds
// their number, or learns the true source from a proxy, belongs here.
func (s *Server) admit(nc net.Conn, cfg *tls.Config) {
	raw := &movingConn{Conn: nc, stall: s.opt.StallTimeout}
	c := &conn{srv: s, raw: raw, net: raw, from: addrOf(nc.RemoteAddr()), sni: route{}}
	if !s.track(c) {
		_ = nc.Close()
		return
	}
	go func() {
		defer s.untrack(c)
		if cfg != nil && !c.handshake(cfg) {
			return
		}
		c.serve()
	}()
}

// addrOf reads an IP endpoint; the zero value for anything else.
func addrOf(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

func (s *Server) listen(ln net.Listener) bool {
	s.baseOnce.Do(func() {
		go func() { _ = s.base.Serve(s.handoff) }()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners[ln] = struct{}{}
	return true
}

func (s *Server) forget(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, ln)
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// wait pauses; false when the server stopped for good meanwhile.
func (s *Server) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !s.isClosed()
	case <-s.ctx.Done():
		return false
	}
}

func (s *Server) track(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	return true
}

// untrack is the end of a connection's goroutine; the connection is closed unless
// it was handed over.
func (s *Server) untrack(c *conn) {
	c.release()
	if !c.handed {
		_ = c.raw.Close()
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.wg.Done()
}

// errStopping is the answer to what was not begun when the server stops.
func errStopping() *relay.Error {
	e := relay.Errorf(relay.CodeStopping, "the relay is stopping; send the request again in a moment")
	e.RetryAfter = retryDefault
	return e
}
