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

// Bounds of what is granted to proxies that have not said for whom they come.
const (
	headerTime  = 5 * time.Second
	mostHeaders = 1024 // read at the same time on one listener
)

// What became of a connection from a trusted proxy, or of a header from somebody
// else, as metrics name it.
const (
	headerTaken    = "taken"     // the source it names counts from now on
	headerLocal    = "local"     // the proxy speaks for itself, as in a health check
	headerMissing  = "missing"   // it began with something else
	headerBad      = "malformed" // or of a kind that is no TCP connection
	headerLate     = "timeout"
	headerOverflow = "overflow"  // too many at once
	headerStranger = "untrusted" // a header from a source that is not trusted
)

var headerResults = []string{
	headerTaken, headerLocal, headerMissing, headerBad, headerLate, headerOverflow, headerStranger, codeOther,
}

// ProxyOptions are what Proxies are made of.
type ProxyOptions struct {
	Trusted  []netip.Prefix        // sources whose PROXY header is believed, and demanded
	Timeout  time.Duration         // for a header to be whole; 0 = 5 s
	Registry prometheus.Registerer // nil = no metrics
	Log      *slog.Logger          // nil = discarded
}

// Proxies puts the PROXY protocol (versions 1 and 2, as HAProxy specifies them)
// before listeners. A connection from a trusted source has to begin with a header;
// the source that this names is its RemoteAddr from then on, so that every limit
// and record counts the true one. One without a header, or with one that cannot be
// read, is closed without a word. Safe for concurrent use.
type Proxies struct {
	opt  ProxyOptions
	met  byLabel
	told lines // of the log
}

// NewProxies makes Proxies; Listener applies them.
func NewProxies(o ProxyOptions) *Proxies {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = headerTime
	}
	p := &Proxies{opt: o, met: byLabel{}, told: lines{most: 1, per: toldPause}}
	vec := counters("relay_proxy_headers_total", "Connections from trusted proxies, and PROXY headers from other sources, by what became of them.", "result")
	if o.Registry != nil {
		if err := o.Registry.Register(vec); err != nil {
			o.Log.Warn("register metrics of proxies", "err", err)
		}
	}
	for _, r := range headerResults {
		p.met[r] = vec.WithLabelValues(r)
	}
	return p
}

// Listener gives what ln accepts, with the headers of trusted sources read. Reading
// them never holds up Accept. guard is for protocols that would read over a header,
// as SSH does (RFC 4253, section 4.2): then connections from other sources that
// begin with one are broken off. Closing the result closes ln.
func (p *Proxies) Listener(ln net.Listener, guard bool) net.Listener {
	if len(p.opt.Trusted) == 0 && !guard {
		return ln
	}
	return &proxyListener{
		Listener: ln, proxies: p, guard: guard,
		out: make(chan accepted), done: make(chan struct{}),
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

// tell writes a line to the log, but not for every connection.
func (p *Proxies) tell(result string, from net.Addr, err error) {
	if more, ok := p.told.may(time.Now()); ok {
		p.opt.Log.Warn("connection from a trusted proxy closed: it has to begin with a PROXY header",
			"from", from, "result", result, "err", err, "more since last told", more)
	}
}

// accepted is what one call of Accept gives.
type accepted struct {
	conn net.Conn
	err  error
}

// proxyListener reads headers between the accept loop of the socket and that of its
// user.
type proxyListener struct {
	net.Listener
	proxies *Proxies
	guard   bool
	begin   sync.Once
	out     chan accepted
	done    chan struct{}

	mu      sync.Mutex
	closed  bool
	pending map[net.Conn]struct{} // their header is being read
}

// Accept gives the next connection whose source is known.
func (l *proxyListener) Accept() (net.Conn, error) {
	l.begin.Do(func() { go l.run() })
	select {
	case a := <-l.out:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// run accepts. An error is handed on before the next try, so that the user's pauses
// are ours.
func (l *proxyListener) run() {
	for {
		c, err := l.Listener.Accept()
		if err == nil && l.proxies.trusts(c.RemoteAddr()) {
			if l.join(c) {
				go l.take(c)
			}
			continue
		}
		if err == nil && l.guard {
			c = &guardedConn{Conn: c, proxies: l.proxies}
		}
		if !l.give(accepted{c, err}) {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			_ = l.Close()
			return
		}
	}
}

// give waits for Accept; false when the listener was closed.
func (l *proxyListener) give(a accepted) bool {
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

// join notes a connection whose header is to be read; where there are too many, it
// is closed.
func (l *proxyListener) join(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending) >= mostHeaders {
		_ = c.Close()
		l.proxies.met.count(headerOverflow)
		return false
	}
	l.pending[c] = struct{}{}
	return true
}

func (l *proxyListener) leave(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, c)
}

// take reads one header and hands the connection on.
func (l *proxyListener) take(c net.Conn) {
	defer l.leave(c)
	_ = c.SetReadDeadline(time.Now().Add(l.proxies.opt.Timeout))
	from, err := readHeader(c)
	result := headerResult(from, err)
	l.proxies.met.count(result)
	if err != nil {
		if !errors.Is(err, io.EOF) { // those who only look whether the port is open
			l.proxies.tell(result, c.RemoteAddr(), err)
		}
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	if from.IsValid() {
		c = &proxiedConn{Conn: c, from: net.TCPAddrFromAddrPort(from)}
	}
	l.give(accepted{conn: c})
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
		return headerTaken
	}
	return headerLocal
}

// Close ends Accept and everything that waits; more than one call is fine.
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

// proxiedConn is a connection whose true source a proxy has told.
type proxiedConn struct {
	net.Conn
	from net.Addr
}

// RemoteAddr is the true source.
func (c *proxiedConn) RemoteAddr() net.Addr { return c.from }

// NetConn is the connection to the proxy.
func (c *proxiedConn) NetConn() net.Conn { return c.Conn }
