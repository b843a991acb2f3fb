package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"relay"
)

// newBase makes the net/http server of the base site. It has no write timeout,
// because streams have no end: movingConn cuts viewers who do not read, over HTTP/2
// movingAnswer those who leave no room for it. Against
// floods of resets, CONTINUATION and control frames stand the bounds of net/http
// itself: streams count until their handler has returned, heads by MaxHeaderBytes,
// queued control frames by 10,000. Frames are as small as RFC 9113 allows: there is
// nothing large to be sent to a dashboard.
func (s *Server) newBase() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           http.HandlerFunc(s.serveBase),
		ReadHeaderTimeout: s.opt.HeadTimeout,
		IdleTimeout:       s.opt.IdleTimeout,
		MaxHeaderBytes:    s.opt.MaxHead,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReadFrameSize: 16 << 10},
		ErrorLog:          log.New(baseLog{s.log}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if h, ok := c.(*handedConn); ok && h.state != nil {
				return context.WithValue(ctx, tlsKey{}, h.state)
			}
			return ctx
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			s.follow(c, state)
		},
	}
}

// baseLog takes what net/http has to say: of callers' faults at the debug level, of
// panics in our pages as errors.
type baseLog struct{ log *slog.Logger }

// Write takes one message.
func (l baseLog) Write(p []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(p, []byte("panic serving")) {
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, string(bytes.TrimSpace(p)))
	return len(p), nil
}

// follow keeps count of connections that are new or idle: these can be let go.
func (s *Server) follow(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.newborn.Store(c, struct{}{})
	} else {
		s.newborn.Delete(c)
	}
	m := movingOf(c)
	switch {
	case m == nil:
	case state == http.StateIdle:
		m.seat.wait()
	case state == http.StateActive:
		m.seat.work()
	}
}

// movingOf finds what lies below a connection that was handed over.
func movingOf(c net.Conn) *movingConn {
	if h, ok := c.(*handedConn); ok {
		return h.conn
	}
	if t, ok := c.(*tls.Conn); ok {
		m, _ := t.NetConn().(*movingConn)
		return m
	}
	return nil
}

// tlsKey is the context key of the TLS state that net/http cannot see itself.
type tlsKey struct{}

// serveBase routes a request on a connection that net/http owns. Aliases are not
// served there: a caller who names one has to use a connection of its own.
func (s *Server) serveBase(w http.ResponseWriter, r *http.Request) {
	if state, ok := r.Context().Value(tlsKey{}).(*tls.ConnectionState); ok {
		r.TLS = state
	}
	if stall := s.opt.StallTimeout; stall > 0 && r.ProtoMajor == 2 {
		a := newMovingAnswer(w, stall)
		defer a.deadline() // what is left is written behind the handler
		w = a
	}
	to, health := s.hosts.find(r.Host), isHealth(r.URL.Path)
	var why *relay.Error
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		why = relay.Errorf(relay.CodeMethodNotAllowed, "the base site knows no %s", r.Method)
	case to.place == toAlias:
		why = errMisdirected()
	case to.place != toBase && !(to.place == elsewhere && health):
		why = errHostUnknown()
	case !health && s.stopping.Load():
		why = errStopping()
	}
	if why != nil {
		s.met.made.count(why.Code)
		writeProblem(w, why)
		return
	}
	s.met.base.Inc()
	switch {
	case s.serveChallenge(w, r):
	case health:
		s.serveHealth(w, r)
	case r.TLS == nil && s.opt.RedirectPlain:
		s.redirect(w, r)
	default:
		s.serveSite(w, r)
	}
}

// redirect leads from plain HTTP to the base URL; 308 keeps the method.
func (s *Server) redirect(w http.ResponseWriter, r *http.Request) {
	target := r.URL.RequestURI()
	if !strings.HasPrefix(target, "/") {
		target = "/"
	}
	w.Header().Set("Location", s.opt.Site.URL(target))
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusPermanentRedirect)
}

// serveSite gives the request to the base site. Bodies have to move. Safe requests
// end soon after a stop began: they are streams and long polls, or quick.
func (s *Server) serveSite(w http.ResponseWriter, r *http.Request) {
	s.wall(w.Header())
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.reads, cancel)()
		r = r.WithContext(ctx)
	}
	if stall := s.opt.StallTimeout; stall > 0 && r.ContentLength != 0 && r.Body != nil {
		body := &movingBody{ReadCloser: r.Body, control: http.NewResponseController(w), stall: stall}
		body.deadline()
		r.Body = body
	}
	if r.ProtoMajor == 2 && r.ContentLength > 0 && r.ContentLength <= smallBody {
		r.Body = wholeBody(r.Body)
	}
	s.opt.Base.ServeHTTP(w, r)
}

// smallBody is the most that is read of an HTTP/2 request before it is answered.
const smallBody = 16 << 10

// wholeBody reads a body to its end. An HTTP/2 message whose length is not the one
// that was declared is malformed (RFC 9113, section 8.1.1) and has to be treated so
// even where nobody would look at its body; the stream is reset then.
func wholeBody(body io.ReadCloser) io.ReadCloser {
	b, err := io.ReadAll(body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return io.NopCloser(bytes.NewReader(b))
}

// handOver gives the connection to net/http, with the bytes read so far, at a
// request boundary.
func (c *conn) handOver() {
	_ = c.net.SetReadDeadline(time.Time{})
	var give net.Conn = c.net
	if t, ok := c.net.(*tls.Conn); !ok || c.w > c.r || c.sni.place != toBase {
		h := &handedConn{Conn: c.net, conn: c.raw, early: append([]byte(nil), c.buf[c.r:c.w]...)}
		if ok {
			state := t.ConnectionState()
			h.state = &state
		}
		give = h
	}
	c.raw.seat.hand()
	c.handed = c.srv.handoff.give(give)
}

// handedConn is a connection of which some bytes were read before.
type handedConn struct {
	net.Conn
	conn  *movingConn
	early []byte
	state *tls.ConnectionState // nil = plain
}

// Read gives the early bytes first.
func (h *handedConn) Read(p []byte) (int, error) {
	if len(h.early) > 0 {
		n := copy(p, h.early)
		if h.early = h.early[n:]; len(h.early) == 0 {
			h.early = nil
		}
		return n, nil
	}
	return h.Conn.Read(p)
}

// CloseWrite lets net/http end its side before it closes.
func (h *handedConn) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return h.conn.CloseWrite()
}

// closeNewborn closes connections that never sent a request: net/http would wait
// five seconds for them.
func (s *Server) closeNewborn() {
	s.newborn.Range(func(c, _ any) bool {
		if nc, ok := c.(net.Conn); ok {
			_ = nc.Close()
		}
		return true
	})
}

// handoff is the listener of the base server: a channel of connections.
type handoff struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), done: make(chan struct{})}
}

// give hands a connection to the server; false when that has ended.
func (h *handoff) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// Accept waits for a connection.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and give; more than one call is fine.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr is of no use here, but has to be something.
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }
