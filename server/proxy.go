package server

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"relay/sockets"
	"relay/waits"
)

const (
	proxyHeaderTimeout = 5 * time.Second
	maxPendingHeaders  = 1024 // largest number of headers that are being read at the same time on one listener
)

// Labels by which the metrics count connections from trusted proxies, and PROXY headers from other sources.
const (
	headerAccepted  = "accepted"  // the connection has the source that the header names
	headerLocal     = "local"     // the proxy itself is the source, as in a health check
	headerMissing   = "missing"   // the connection began with something other than a header
	headerBad       = "malformed" // a malformed header, or one that is not about a TCP connection
	headerLate      = "timeout"
	headerOverflow  = "overflow"  // maxPendingHeaders is reached
	headerUntrusted = "untrusted" // a header from a source that is not trusted
)

var headerResults = []string{
	headerAccepted, headerLocal, headerMissing, headerBad, headerLate, headerOverflow, headerUntrusted, codeOther,
}

// ProxyOptions configure Proxies.
type ProxyOptions struct {
	Trusted  []netip.Prefix        // sources whose connections must begin with a PROXY header, which relayd believes
	Timeout  time.Duration         // longest wait for a complete header; 0 = 5 s
	Registry prometheus.Registerer // nil = no metrics
	Log      *slog.Logger          // nil = discarded
}

// Proxies adds the PROXY protocol (versions 1 and 2, as HAProxy specifies them) to listeners. A
// connection from a trusted source has to begin with a header; the source in the header becomes the
// RemoteAddr of the connection, so that limits and records have the true source. A connection without a
// valid header is closed. Proxies is safe for concurrent use.
//
// Proxies does not use the Listener of go-proxyproto, whose RemoteAddr reads from the connection. The accept
// loops call RemoteAddr, so a silent connection would block them (docs/adr/0014).
type Proxies struct {
	opt ProxyOptions
	met counterByLabel
	log *logLimiter
}

// NewProxies returns Proxies with the given options; Listener applies them to a listener.
func NewProxies(o ProxyOptions) *Proxies {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Timeout <= 0 {
		o.Timeout = proxyHeaderTimeout
	}
	vec := promauto.With(o.Registry).NewCounterVec(prometheus.CounterOpts{
		Name: "relay_proxy_headers_total",
		Help: "Connections from trusted proxies, and PROXY headers from other sources, by what became of them.",
	}, []string{"result"})
	return &Proxies{opt: o, met: byLabel(vec, headerResults...), log: newLogLimiter(1, logInterval)}
}

// Listener returns a listener for the connections of ln that reads the headers of trusted sources.
// Accept never waits for a header. Set guard for a protocol that skips unknown lines before its own,
// as SSH does (RFC 4253, section 4.2): then a connection from an untrusted source that begins with a
// header is closed. Closing the result closes ln.
func (p *Proxies) Listener(ln net.Listener, guard bool) net.Listener {
	if len(p.opt.Trusted) == 0 && !guard {
		return ln
	}
	return &proxyListener{handoff: newHandoff(), inner: ln, proxies: p, guard: guard, slots: make(chan struct{}, maxPendingHeaders)}
}

// proxyListener accepts connections in a goroutine, reads the headers of trusted sources, and passes
// the connections on to its Accept.
type proxyListener struct {
	*handoff
	inner     net.Listener
	proxies   *Proxies
	guard     bool
	startOnce sync.Once
	slots     chan struct{} // one element for each header that is being read
}

// Addr returns the address of the inner listener.
func (l *proxyListener) Addr() net.Addr { return l.inner.Addr() }

// Accept returns the next connection. Connections from trusted sources come only after their header was read.
func (l *proxyListener) Accept() (net.Conn, error) {
	l.startOnce.Do(func() { go l.run() })
	return l.handoff.Accept()
}

// run accepts connections and passes them to Accept. It also passes each error to Accept before it tries
// again. So after an error it pauses until Accept is called again.
func (l *proxyListener) run() {
	for l.ctx.Err() == nil {
		c, err := l.inner.Accept()
		if err == nil && sockets.ContainsAddr(l.proxies.opt.Trusted, sockets.AddrOf(c.RemoteAddr()).Addr()) {
			select {
			case l.slots <- struct{}{}:
				go l.readHeader(c)
			default:
				_ = c.Close()
				l.proxies.met.count(headerOverflow)
			}
			continue
		}
		if err == nil && l.guard {
			c = &rejectHeaderConn{Conn: c, proxies: l.proxies}
		}
		l.deliverOrClose(c, err)
		if errors.Is(err, net.ErrClosed) {
			_ = l.Close()
		}
	}
}

func (l *proxyListener) deliverOrClose(c net.Conn, err error) {
	if !l.deliver(c, err) && c != nil {
		_ = c.Close()
	}
}

// readHeader reads the header of a connection, and passes the connection to Accept, or closes it if it has no
// valid header.
func (l *proxyListener) readHeader(c net.Conn) {
	defer func() { <-l.slots }()
	ctx, cancel := waits.WithTimeout(l.ctx, l.proxies.opt.Timeout)
	defer cancel()
	closeEarly := context.AfterFunc(ctx, func() { _ = c.Close() })
	from, err := readHeader(c)
	result := headerLocal
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		result = headerLate
	case errors.Is(err, errNoHeader), errors.Is(err, io.EOF):
		result = headerMissing
	case err != nil:
		result = headerBad
	case from.IsValid():
		result = headerAccepted
	}
	l.proxies.met.count(result)
	closeEarly()
	if err != nil {
		_ = c.Close()
		if errors.Is(err, io.EOF) {
			// A check whether the port is open ends without a byte, and is not logged.
			return
		}
		if suppressed, ok := l.proxies.log.allow(); ok {
			l.proxies.opt.Log.Warn("connection from a trusted proxy closed: it has to begin with a PROXY header",
				"from", c.RemoteAddr(), "result", result, "err", err, "suppressed", suppressed)
		}
		return
	}
	if from.IsValid() {
		c = &proxiedConn{Conn: c, from: net.TCPAddrFromAddrPort(from)}
	}
	l.deliverOrClose(c, nil)
}

// Close ends Accept and closes the connections whose headers are being read. It may be called more
// than once.
func (l *proxyListener) Close() error {
	l.cancel()
	return l.inner.Close()
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

// Lengths of headers. Version 1 is one line. Version 2 has 16 fixed bytes, which contain the length of
// the addresses and TLVs that follow.
const (
	minHeader    = 6  // length of "PROXY ", with which version 1 begins, and the number of bytes that are read first
	minV1Line    = 15 // length of the shortest line of version 1: "PROXY UNKNOWN" with its line end
	maxV1Line    = 107
	v2Fixed      = 16
	maxV2Payload = 4 << 10
)

var errNoHeader = errors.New("there is no PROXY header")

// readHeader reads a PROXY header and not a byte more. It returns the zero value if the proxy itself is
// the source. It finds the end of the header without go-proxyproto, which refuses a line of version 1
// that arrives in more than one read.
func readHeader(r io.Reader) (netip.AddrPort, error) {
	text, err := frameHeader(r)
	if err != nil {
		return netip.AddrPort{}, err
	}
	h, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(text), len(text)))
	if err != nil {
		return netip.AddrPort{}, err
	}
	if h.Command.IsLocal() {
		return netip.AddrPort{}, nil
	}
	if h.TransportProtocol != proxyproto.TCPv4 && h.TransportProtocol != proxyproto.TCPv6 {
		return netip.AddrPort{}, fmt.Errorf("a PROXY header of address family and protocol %#x, which is no TCP connection", byte(h.TransportProtocol))
	}
	if h.Version == 1 && bytes.Count(text, []byte(" ")) != 5 {
		return netip.AddrPort{}, errors.New("a PROXY header of version 1 with more than six words")
	}
	if _, err := h.TLVs(); err != nil {
		return netip.AddrPort{}, fmt.Errorf("TLVs of a PROXY header: %w", err)
	}
	src, _, ok := h.TCPAddrs()
	if !ok {
		return netip.AddrPort{}, errors.New("a PROXY header without addresses")
	}
	from := sockets.AddrOf(src)
	if !from.IsValid() || from.Addr().IsUnspecified() || from.Addr().IsMulticast() {
		return netip.AddrPort{}, fmt.Errorf("a PROXY header with source %v, which is no host", src)
	}
	return from, nil
}

// frameHeader reads the bytes of a header of either version. It never reads more than the header
// certainly has, because the bytes after it belong to the connection.
func frameHeader(r io.Reader) (text []byte, err error) {
	for need := minHeader; len(text) < need; {
		have := len(text)
		text = append(text, make([]byte, need-have)...)
		if _, err := io.ReadFull(r, text[have:]); err != nil {
			return nil, err
		}
		switch {
		case bytes.HasPrefix(text, []byte("PROXY ")):
			if text[need-1] == '\n' {
				return text, nil
			}
			if need >= maxV1Line {
				return nil, proxyproto.ErrVersion1HeaderTooLong
			}
			need = max(minV1Line, need+1)
		case !bytes.HasPrefix(text, proxyproto.SIGV2[:min(need, len(proxyproto.SIGV2))]):
			return nil, errNoHeader
		case need < v2Fixed:
			need = v2Fixed
		case need == v2Fixed:
			follows := int(binary.BigEndian.Uint16(text[v2Fixed-2:]))
			if follows > maxV2Payload {
				return nil, fmt.Errorf("a PROXY header of %d bytes; %d are the most", v2Fixed+follows, v2Fixed+maxV2Payload)
			}
			need += follows
		}
	}
	return text, nil
}

// rejectHeaderConn is a connection from a source that is not trusted. It is closed if its first bytes
// are a PROXY header.
type rejectHeaderConn struct {
	net.Conn
	proxies *Proxies
	seen    []byte // the first bytes that were read, at most as many as the signature of version 2 has
}

var errUntrustedHeader = errors.New("a PROXY header from a source that is not trusted")

// Read closes the connection if the first bytes are a PROXY header.
func (c *rejectHeaderConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if len(c.seen) == len(proxyproto.SIGV2) {
		return n, err
	}
	c.seen = append(c.seen, p[:min(n, len(proxyproto.SIGV2)-len(c.seen))]...)
	for _, sign := range [][]byte{[]byte("PROXY "), proxyproto.SIGV2} {
		if bytes.HasPrefix(c.seen, sign) {
			c.proxies.met.count(headerUntrusted)
			_ = c.Close()
			return 0, errUntrustedHeader
		}
	}
	return n, err
}

// NetConn returns the underlying connection.
func (c *rejectHeaderConn) NetConn() net.Conn { return c.Conn }
