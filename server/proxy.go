package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	proxyHeaderTimeout = 5 * time.Second
	maxPendingHeaders  = 1024 // headers that are being read on one listener
)

// Results of a connection from a trusted proxy, and of a header from another source,
// as the metrics name them.
const (
	headerAccepted  = "accepted"  // the connection has the source that the header names
	headerLocal     = "local"     // the proxy itself is the source, as in a health check
	headerMissing   = "missing"   // the connection began with something else
	headerBad       = "malformed" // also one that is not about a TCP connection
	headerLate      = "timeout"
	headerOverflow  = "overflow"  // maxPendingHeaders is reached
	headerUntrusted = "untrusted" // a header from a source that is not trusted
)

var headerResults = []string{
	headerAccepted, headerLocal, headerMissing, headerBad, headerLate, headerOverflow, headerUntrusted, codeOther,
}

// ProxyOptions configure Proxies.
type ProxyOptions struct {
	Trusted  []netip.Prefix        // sources whose PROXY header is believed, and required
	Timeout  time.Duration         // for reading a header; 0 = 5 s
	Registry prometheus.Registerer // nil = no metrics
	Log      *slog.Logger          // nil = discarded
}

// Proxies adds the PROXY protocol (versions 1 and 2, as HAProxy specifies them) to
// listeners. A connection from a trusted source has to begin with a header; the source
// in the header becomes the RemoteAddr of the connection, so that limits and records
// have the true source. A connection without a valid header is closed. Safe for
// concurrent use.
//
// It is not the Listener of go-proxyproto, whose RemoteAddr reads from the connection
// and so would block both accept loops (docs/adr/0014).
type Proxies struct {
	opt ProxyOptions
	met counterByLabel
	log logLimiter
}

// NewProxies makes Proxies; Listener applies them.
func NewProxies(o ProxyOptions) *Proxies {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = proxyHeaderTimeout
	}
	p := &Proxies{opt: o, met: counterByLabel{}, log: logLimiter{limit: 1, interval: logInterval}}
	vec := counters("relay_proxy_headers_total", "Connections from trusted proxies, and PROXY headers from other sources, by what became of them.", "result")
	if o.Registry != nil {
		if err := o.Registry.Register(vec); err != nil {
			o.Log.Warn("proxy metrics cannot be registered", "err", err)
		}
	}
	for _, r := range headerResults {
		p.met[r] = vec.WithLabelValues(r)
	}
	return p
}

// Listener returns a listener for the connections of ln, with the headers of trusted
// sources read. Accept never waits for a header. Set guard for a protocol that skips
// unknown lines before its own, as SSH does (RFC 4253, section 4.2): a connection from
// another source that begins with a header is closed then. Closing the result closes
// ln.
func (p *Proxies) Listener(ln net.Listener, guard bool) net.Listener {
	if len(p.opt.Trusted) == 0 && !guard {
		return ln
	}
	return &proxyListener{
		Listener: ln, proxies: p, guard: guard,
		out: make(chan acceptResult), done: make(chan struct{}),
		pending: map[net.Conn]struct{}{},
	}
}

func (p *Proxies) trusts(a net.Addr) bool {
	from := addrOf(a).Addr().WithZone("") // prefixes have none
	for _, t := range p.opt.Trusted {
		if t.Contains(from) {
			return true
		}
	}
	return false
}

// logRefused logs that a connection was closed, at most once per logInterval.
func (p *Proxies) logRefused(result string, from net.Addr, err error) {
	if suppressed, ok := p.log.allow(time.Now()); ok {
		p.opt.Log.Warn("connection from a trusted proxy closed: it has to begin with a PROXY header",
			"from", from, "result", result, "err", err, "suppressed", suppressed)
	}
}

// acceptResult is the result of one call of Accept.
type acceptResult struct {
	conn net.Conn
	err  error
}

// proxyListener accepts connections in a goroutine of its own, reads the headers of
// trusted sources, and passes the connections on to its Accept.
type proxyListener struct {
	net.Listener
	proxies   *Proxies
	guard     bool
	startOnce sync.Once
	out       chan acceptResult
	done      chan struct{}

	mu      sync.Mutex
	closed  bool
	pending map[net.Conn]struct{} // connections whose header is being read
}

// Accept returns the next connection whose source is known.
func (l *proxyListener) Accept() (net.Conn, error) {
	l.startOnce.Do(func() { go l.run() })
	select {
	case a := <-l.out:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// run accepts connections. It delivers an error before it tries again, so that it
// pauses after errors as the user of Accept does.
func (l *proxyListener) run() {
	for {
		c, err := l.Listener.Accept()
		if err == nil && l.proxies.trusts(c.RemoteAddr()) {
			if l.addPending(c) {
				go l.readHeader(c)
			}
			continue
		}
		if err == nil && l.guard {
			c = &rejectHeaderConn{Conn: c, proxies: l.proxies}
		}
		if !l.deliver(acceptResult{c, err}) {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			_ = l.Close()
			return
		}
	}
}

// deliver waits for Accept to take a; false when the listener was closed.
func (l *proxyListener) deliver(a acceptResult) bool {
	select {
	case l.out <- a:
		return true
	case <-l.done:
		if a.conn != nil {
			_ = a.conn.Close()
		}
		return false
	}
}

// addPending notes a connection whose header will be read. It closes the connection if
// there are too many.
func (l *proxyListener) addPending(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending) >= maxPendingHeaders {
		_ = c.Close()
		l.proxies.met.count(headerOverflow)
		return false
	}
	l.pending[c] = struct{}{}
	return true
}

func (l *proxyListener) removePending(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, c)
}

// readHeader reads one header and delivers the connection.
func (l *proxyListener) readHeader(c net.Conn) {
	defer l.removePending(c)
	_ = c.SetReadDeadline(time.Now().Add(l.proxies.opt.Timeout))
	from, err := readHeader(c)
	result := headerResult(from, err)
	l.proxies.met.count(result)
	if err != nil {
		if !errors.Is(err, io.EOF) { // a check whether the port is open
			l.proxies.logRefused(result, c.RemoteAddr(), err)
		}
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	if from.IsValid() {
		c = &proxiedConn{Conn: c, from: net.TCPAddrFromAddrPort(from)}
	}
	l.deliver(acceptResult{conn: c})
}

func headerResult(from netip.AddrPort, err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return headerLate
	case errors.Is(err, errNoHeader), errors.Is(err, io.EOF):
		return headerMissing
	case err != nil:
		return headerBad
	case from.IsValid():
		return headerAccepted
	}
	return headerLocal
}

// Close ends Accept and closes the connections whose header is being read. It may be
// called more than once.
func (l *proxyListener) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	for c := range l.pending {
		_ = c.Close()
	}
	l.mu.Unlock()
	if first {
		close(l.done)
	}
	return l.Listener.Close()
}

// proxiedConn is a connection whose source a PROXY header has named.
type proxiedConn struct {
	net.Conn
	from net.Addr
}

// RemoteAddr returns the source in the header.
func (c *proxiedConn) RemoteAddr() net.Addr { return c.from }

// NetConn returns the connection to the proxy.
func (c *proxiedConn) NetConn() net.Conn { return c.Conn }
