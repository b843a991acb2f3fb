package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"relay"
	"relay/admission"
	"relay/sockets"
)

// newBase returns the net/http server of the base site. It has no write timeout, because event streams have
// no end. Instead, stallConn ends connections whose client does not read, and stallWriter ends HTTP/2 streams
// whose client opens no flow control window. Floods of resets, CONTINUATION and control frames are bounded by
// net/http itself. The largest frame is as small as RFC 9113 allows, because clients send nothing large to a
// dashboard.
func (s *Server) newBase() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           http.HandlerFunc(s.serveBase),
		ReadHeaderTimeout: s.opt.HeadTimeout,
		IdleTimeout:       s.opt.IdleTimeout,
		MaxHeaderBytes:    HeadLimit(s.opt.MaxHead),
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReadFrameSize: 16 << 10},
		ErrorLog:          log.New(baseLog{s.log}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if h, ok := c.(*handedConn); ok {
				return context.WithValue(ctx, handedKey{}, h)
			}
			return ctx
		},
		ConnState:                    s.trackState,
		DisableGeneralOptionsHandler: true, // otherwise net/http answers OPTIONS * itself, for any host
	}
}

// HeadLimit returns the value of http.Server.MaxHeaderBytes for the limit maxHead, of which 0 means no limit.
// net/http takes 0 for 1 MiB, and adds a few KiB to any number.
func HeadLimit(maxHead int) int {
	if maxHead <= 0 {
		return math.MaxInt32
	}
	return min(maxHead, math.MaxInt32)
}

// baseLog logs the messages of net/http: panics of handlers as errors. All other messages report errors
// of callers, and are logged at level debug.
type baseLog struct{ log *slog.Logger }

// Write logs one message.
func (l baseLog) Write(p []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(p, []byte("panic serving")) {
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, "base site", "message", string(bytes.TrimSpace(p)))
	return len(p), nil
}

// trackState counts the connections of net/http. It notes which have had no request yet, because Shutdown
// closes them, and which are idle, because these may be evicted.
func (s *Server) trackState(c net.Conn, state http.ConnState) {
	s.idleNew.Delete(c)
	switch state {
	case http.StateNew:
		s.idleNew.Store(c, struct{}{})
		s.baseConns.Add(1)
	case http.StateHijacked, http.StateClosed:
		s.baseConns.Add(-1)
	}
	var sock *stallConn
	switch c := c.(type) {
	case *handedConn:
		sock = c.conn
	case *tls.Conn:
		sock, _ = c.NetConn().(*stallConn)
	}
	switch {
	case sock == nil:
	case state == http.StateIdle:
		sock.slot.SetClass(admission.Idle)
	case state == http.StateActive:
		sock.slot.SetClass(admission.Busy)
	}
}

// handedKey is the context key of a handedConn.
type handedKey struct{}

// serveBase routes a request on a connection that net/http owns. A connection without TLS ends after the
// answer: clients and proxies use one connection for all hosts of an address, and the next request may be for
// an alias, which net/http must not read.
func (s *Server) serveBase(w http.ResponseWriter, r *http.Request) {
	switch h, ok := r.Context().Value(handedKey{}).(*handedConn); {
	case !ok:
		// The request came over TLS with the server name of the base host.
	case h.state != nil:
		r.TLS = h.state
	default:
		w.Header().Set("Connection", "close")
	}
	if stall := s.opt.StallTimeout; stall > 0 && r.ProtoMajor == 2 {
		a := &stallWriter{w, http.NewResponseController(w), stall}
		// net/http writes the last bytes after the handler has returned, so these need a deadline, too.
		defer a.setDeadline()
		w = a
	}
	if stall := s.opt.StallTimeout; stall > 0 && r.ProtoMajor == 1 && r.ContentLength != 0 {
		// net/http reads the rest of a body before it sends an answer or closes the connection. Without
		// a deadline this may take forever.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stall))
	}
	to, health := s.hosts.find(r.Host), isHealth(r.URL.Path)
	var why *relay.Error
	switch {
	case r.Method == http.MethodConnect, r.Method == http.MethodTrace && !strings.HasPrefix(r.URL.Path, "/api/"):
		// The API answers TRACE itself, as it answers any other method that a path does not take.
		why = relay.Errorf(relay.CodeMethodNotAllowed, "method %s is not allowed here", r.Method)
	case to.kind == hostAlias:
		why = errMisdirected
	case to.kind != hostBase && !(to.kind == hostUnknown && health):
		why = errHostUnknown
	case !health && s.stopping.Load():
		why = errStopping
	}
	if why != nil {
		s.met.made.count(why.Code)
		writeProblem(w, why)
		s.accessOfBase(r, to, relay.Status(why.Code), why.Code, time.Now())
		return
	}
	s.met.base.Inc()
	answer, challenge := s.challengeAnswer(r.TLS != nil, r.Method, r.Host, r.URL.Path)
	switch {
	case challenge:
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, answer)
		s.accessOfBase(r, to, http.StatusOK, "", time.Now())
	case health:
		s.serveHealth(w, r)
	case r.TLS == nil && s.opt.RedirectPlain:
		target := r.URL.RequestURI()
		if !strings.HasPrefix(target, "/") {
			target = "/"
		}
		w.Header().Set("Location", s.opt.Site.URL(target))
		w.Header().Set("Content-Length", "0")
		// After 308, unlike 301, the client sends the request again with the same method and body.
		w.WriteHeader(http.StatusPermanentRedirect)
	case s.starting.Load():
		writeProblem(w, errStarting)
	default:
		s.serveSite(w, r)
	}
}

// serveSite lets the base site answer the request. A body fails if none of its bytes arrives for
// StallTimeout. The context of GET and HEAD ends soon after a stop has begun, because such requests
// are event streams, long polls, or quick.
func (s *Server) serveSite(w http.ResponseWriter, r *http.Request) {
	s.setSecurityHeaders(w.Header())
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.reads, cancel)()
		r = r.WithContext(ctx)
	}
	if stall := s.opt.StallTimeout; stall > 0 && r.ContentLength != 0 && r.Body != nil {
		body := &stallReader{ReadCloser: r.Body, control: http.NewResponseController(w), stall: stall}
		body.setDeadline()
		// The new body goes into a copy of r. net/http needs the type of its own r.Body to see whether
		// the caller waits for a 100 Continue; otherwise it reads the rest of the body before it sends
		// the head.
		r = r.WithContext(r.Context())
		r.Body = body
	}
	// An HTTP/2 request whose body is shorter or longer than declared is malformed (RFC 9113, section
	// 8.1.1), even if its handler ignores the body. The server resets such a stream.
	if r.ProtoMajor == 2 && r.ContentLength > 0 && r.ContentLength <= smallBody {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	s.opt.Base.ServeHTTP(w, r)
}

// smallBody is the longest HTTP/2 request body that is read before the handler runs.
const smallBody = 16 << 10

// handOver passes the connection to net/http at a request boundary, with the bytes that were already
// read.
func (c *conn) handOver() {
	_ = c.net.SetReadDeadline(time.Time{})
	var give net.Conn = c.net
	if t, ok := c.net.(*tls.Conn); !ok || c.w > c.r || c.sni.kind != hostBase {
		h := &handedConn{Conn: c.net, conn: c.sock, early: append([]byte(nil), c.buf[c.r:c.w]...)}
		if ok {
			state := t.ConnectionState()
			h.state = &state
		}
		give = h
	}
	c.handed = c.srv.handoff.deliver(give, nil)
}

// handedConn is a connection that was handed over, with the bytes that were already read.
type handedConn struct {
	net.Conn
	conn  *stallConn
	early []byte
	state *tls.ConnectionState // nil = the connection has no TLS
}

// Read first returns the bytes that were already read.
func (h *handedConn) Read(p []byte) (int, error) {
	if len(h.early) > 0 {
		n := copy(p, h.early)
		h.early = h.early[n:]
		return n, nil
	}
	return h.Conn.Read(p)
}

// CloseWrite lets net/http send FIN before it closes.
func (h *handedConn) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return h.conn.CloseWrite()
}

// handoff is a listener whose Accept returns the connections that are passed to its method deliver.
type handoff struct {
	accepted chan acceptResult
	ctx      context.Context // ended by Close
	cancel   context.CancelFunc
}

// acceptResult is the result of one call of Accept.
type acceptResult struct {
	conn net.Conn
	err  error
}

func newHandoff() *handoff {
	h := &handoff{accepted: make(chan acceptResult)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// deliver waits until Accept takes a result. It returns false if the listener was closed.
func (h *handoff) deliver(c net.Conn, err error) bool {
	select {
	case h.accepted <- acceptResult{c, err}:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// Accept waits for a result.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case a := <-h.accepted:
		return a.conn, a.err
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends Accept and deliver. It may be called more than once.
func (h *handoff) Close() error {
	h.cancel()
	return nil
}

// Addr implements net.Listener; its value is not used.
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }

// hsts makes browsers use https for half a year. It leaves out subdomains, because they may be aliases,
// whose owners decide for themselves, or unrelated hosts.
const hsts = "max-age=15552000"

// setSecurityHeaders sets the security headers of every response of the base site. A
// page that needs others, such as its own content security policy, replaces them.
func (s *Server) setSecurityHeaders(h http.Header) {
	https, local := s.opt.Site.Base.Scheme == "https", sockets.IsLoopback(s.hosts.base) || strings.HasSuffix(s.hosts.base, ".localhost")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	if https || local {
		// This header is left out with plain HTTP, because browsers ignore it there and report an error in
		// the console.
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
	}
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	if https && !local {
		// This header is left out at localhost, because it would also apply to other programs there, on other
		// ports.
		h.Set("Strict-Transport-Security", hsts)
	}
}
