package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"syscall"
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
			s.met.failed.Inc()
			freed := s.exhausted(err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			if silent, ok := s.acceptTold.may(time.Now()); ok {
				s.log.Warn("connections cannot be accepted; raise the limit of open files (LimitNOFILE=, ulimit -n)",
					"err", err, "again", pause, "idle closed", freed, "more", silent)
			}
			if !s.wait(pause) {
				return nil
			}
		}
	}
}

// shedFiles is how many idle connections are closed each time that the system has
// no descriptor or memory for another one.
const shedFiles = 16

// exhausted closes idle connections where that may cure a failed accept, and tells
// how many.
func (s *Server) exhausted(err error) int {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			let := s.crowd.shed(shedFiles)
			for _, nc := range let {
				_ = nc.Close()
			}
			s.met.shed[forFiles].Add(float64(len(let)))
			return len(let)
		}
	}
	return 0
}

// admit decides whether a connection may stay and starts to serve it. It is the one
// place where every connection passes before its first byte is read: what learns
// the true source from a proxy belongs here, before it asks for a place.
func (s *Server) admit(nc net.Conn, cfg *tls.Config) {
	s.met.accepted.Inc()
	raw := &movingConn{Conn: nc, stall: s.opt.StallTimeout}
	c := &conn{srv: s, raw: raw, net: raw, from: addrOf(nc.RemoteAddr()), sni: route{}}
	let, why := s.crowd.join(&raw.seat, nc, c.from.Addr())
	if why != "" && let == nil {
		s.turnAway(c, why, cfg != nil)
		return
	}
	if let != nil {
		s.met.shed[why].Inc()
		_ = let.Close()
	}
	if !s.track(c) {
		_ = raw.Close()
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
