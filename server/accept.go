package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"runtime/debug"
	"syscall"
	"time"

	"relay"
)

// Serve answers plain HTTP on ln until Shutdown, which makes it return nil. It closes
// ln when it returns.
func (s *Server) Serve(ln net.Listener) error {
	return s.acceptLoop(ln, nil)
}

// ServeTLS answers HTTP over TLS on ln until Shutdown, which makes it return nil. The
// ALPN protocols follow from the server name: http/1.1 and http/1.0 for alias hosts,
// h2 too for the base host, and acme-tls/1 if cfg has it.
func (s *Server) ServeTLS(ln net.Listener, cfg *tls.Config) error {
	return s.acceptLoop(ln, s.byServerName(cfg))
}

// acceptLoop accepts connections until the listener is closed. After any other error
// it tries again after a pause, because the usual ones, no descriptors or memory left,
// go away.
func (s *Server) acceptLoop(ln net.Listener, cfg *tls.Config) error {
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
			freed := s.evictForResources(err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			if suppressed, ok := s.acceptLog.allow(time.Now()); ok {
				s.log.Warn("connections cannot be accepted; raise the limit of open files (LimitNOFILE=, ulimit -n)",
					"err", err, "retry_in", pause, "idle_closed", freed, "suppressed", suppressed)
			}
			if !s.pause(pause) {
				return nil
			}
		}
	}
}

// evictPerFailure is how many idle connections are closed when an accept fails because
// the system has no descriptors or memory left.
const evictPerFailure = 16

// evictForResources closes idle connections if err says that descriptors or memory are
// short, and returns how many.
func (s *Server) evictForResources(err error) int {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			evicted := s.connLimit.evict(evictPerFailure)
			for _, nc := range evicted {
				_ = nc.Close()
			}
			s.met.evicted[boundFiles].Add(float64(len(evicted)))
			return len(evicted)
		}
	}
	return 0
}

// admit takes a slot for a connection and starts to serve it, or refuses it. Every
// connection passes here before its first byte is read.
func (s *Server) admit(nc net.Conn, cfg *tls.Config) {
	s.met.accepted.Inc()
	limitUnsent(nc)
	sock := &stallConn{Conn: nc, stall: s.opt.StallTimeout}
	c := &conn{srv: s, sock: sock, net: sock, from: addrOf(nc.RemoteAddr())}
	evicted, bound := s.connLimit.acquire(&sock.slot, nc, c.from.Addr())
	if bound != "" && evicted == nil {
		s.rejectConn(c, bound, cfg != nil)
		return
	}
	if evicted != nil {
		s.met.evicted[bound].Inc()
		_ = evicted.Close()
	}
	if !s.track(c) {
		_ = sock.Close()
		return
	}
	go func() {
		defer s.untrack(c)
		defer c.recoverPanic()
		if cfg != nil && !c.handshake(cfg) {
			return
		}
		c.serve()
	}()
}

// recoverPanic ends only this connection when serving it panics: one request must not
// take down the tunnels and requests of everybody else. The connection is reset, so
// that its caller cannot take what it has received for the whole.
func (c *conn) recoverPanic() {
	if v := recover(); v != nil {
		c.srv.met.panics.Inc()
		c.srv.log.Error("panic while serving a connection", "from", c.from, "panic", v, "stack", string(debug.Stack()))
		c.Abort()
	}
}

// addrOf returns the IP address and port of a, the zero value if a has none.
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

// pause waits for d; false when the server has stopped.
func (s *Server) pause(d time.Duration) bool {
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

// untrack ends a connection's goroutine. It closes the connection unless net/http owns
// it now.
func (s *Server) untrack(c *conn) {
	c.release()
	if !c.handed {
		_ = c.sock.Close()
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.wg.Done()
}

// errStopping is the answer to requests that come while the server stops.
func errStopping() *relay.Error {
	e := relay.Errorf(relay.CodeStopping, "the relay is stopping; send the request again in a moment")
	e.RetryAfter = retryDefault
	return e
}
