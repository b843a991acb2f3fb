package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"relay"
	"relay/wire"
)

// Phases of a connection, for Shutdown and metrics.
const (
	phaseNew    int32 = iota // nothing read yet, or in its TLS handshake
	phaseIdle                // kept, waits for another request
	phaseHead                // inside a head
	phaseBusy                // a capture runs
	phaseLinger              // all said, waits for the caller to close
)

// conn is one connection as long as it carries requests to aliases. It is the
// relay.Caller of its requests. One goroutine serves it; a capture may read and
// write from two others, and Abort may be called from anywhere.
type conn struct {
	srv    *Server
	raw    *movingConn // the socket
	net    net.Conn    // what is read and written: raw, or TLS above it
	from   netip.AddrPort
	secure bool
	sni    route  // where that name leads
	host   string // of the last request, and where it leads: most callers ask for one
	to     route
	handed bool // net/http owns it now
	linger bool // to be closed in order

	phase   atomic.Int32
	aborted atomic.Bool

	// buf[r:w] is read but not consumed. buf is small while the connection is idle,
	// then one from the pool, and a bigger one for a bigger head.
	buf      []byte
	r, w     int
	pooled   *[]byte
	fromBuf  bool // where the last Read took its bytes
	arrived  time.Time
	smallBuf [2 << 10]byte
}

// buffers holds what connections read into while they have something to read.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// errGone means that there is nobody to answer.
var errGone = errors.New("caller gone")

// errIdle means that the caller sent no byte of another request in time.
var errIdle = errors.New("idle")

// rewind makes the small buffer the current one; nothing may be buffered.
func (c *conn) rewind() {
	c.release()
	c.buf, c.r, c.w = c.smallBuf[:], 0, 0
}

// release gives the pooled buffer back.
func (c *conn) release() {
	if c.pooled != nil {
		buffers.Put(c.pooled)
		c.pooled, c.buf = nil, nil
		c.r, c.w = 0, 0
	}
}

// room makes sure that buf has space behind w for at least one byte, moving or
// growing it.
func (c *conn) room() {
	if c.w < len(c.buf) {
		return
	}
	if c.r > 0 {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
		return
	}
	c.grow(len(c.buf) + 1)
}

// grow moves what is buffered to the start of a buffer of at least size bytes.
func (c *conn) grow(size int) {
	old, oldPool := c.buf[c.r:c.w], c.pooled
	b, _ := buffers.Get().(*[]byte)
	if len(*b) >= size {
		c.pooled, c.buf = b, *b
	} else {
		buffers.Put(b)
		c.pooled, c.buf = nil, make([]byte, max(size, 4*len(*b), 2*len(c.buf)))
	}
	c.r, c.w = 0, copy(c.buf, old)
	if oldPool != nil {
		buffers.Put(oldPool)
	}
}

// firstByte waits until there is a byte of another request, for at most the idle
// timeout. An empty line before a request is none yet (RFC 9112, section 2.2).
func (c *conn) firstByte() error {
	if c.w == c.r {
		c.rewind()
	}
	if c.w > c.r && !onlyLineEnd(c.buf[c.r:c.w]) {
		return nil
	}
	c.raw.seat.wait()
	c.deadline(c.srv.opt.IdleTimeout)
	for {
		c.room()
		n, err := c.net.Read(c.buf[c.w:])
		c.w += n
		switch {
		case n > 0 && !onlyLineEnd(c.buf[c.r:c.w]):
			if !c.raw.seat.work() {
				return errIdle
			}
			return nil
		case err != nil:
			return errIdle
		}
	}
}

func onlyLineEnd(p []byte) bool {
	return len(p) == 0 || (len(p) <= 2 && bytes.HasPrefix([]byte("\r\n"), p))
}

// deadline gives the next reads d in all; 0 = no end.
func (c *conn) deadline(d time.Duration) {
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	_ = c.net.SetReadDeadline(t)
}

// readHead reads until a request head is whole. The head points into the buffer
// until the next read and took n bytes of it. An error is a *relay.Error to
// answer, errGone or errIdle.
func (c *conn) readHead() (h *wire.Head, n int, err error) {
	if err := c.firstByte(); err != nil {
		return nil, 0, err
	}
	c.phase.Store(phaseHead)
	c.arrived = time.Now()
	c.deadline(c.srv.opt.HeadTimeout)
	limits := c.srv.limits
	for {
		h, n, err = wire.Request(c.buf[c.r:c.w], limits)
		if !errors.Is(err, wire.ErrMore) {
			return h, n, err
		}
		limits.Seen = c.w - c.r
		if err := c.more(); err != nil {
			return nil, 0, err
		}
	}
}

// more reads on within a head.
func (c *conn) more() error {
	c.room()
	n, err := c.net.Read(c.buf[c.w:])
	c.w += n
	switch {
	case n > 0:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		if c.srv.stopping.Load() {
			return errStopping()
		}
		return relay.Errorf(relay.CodeRequestTimeout, "the request head was not complete within %v", c.srv.opt.HeadTimeout)
	case errors.Is(err, io.EOF):
		return relay.Errorf(relay.CodeRequestMalformed, "the connection ended inside the request head")
	case err != nil:
		return errGone
	}
	return nil
}

// Buffered is how many bytes Read gives without touching the connection.
func (c *conn) Buffered() int { return c.w - c.r }

// Read gives what came behind the head first, then reads with a deadline that each
// call renews. It may be called again after a request-timeout.
func (c *conn) Read(p []byte) (int, error) {
	if c.fromBuf = c.r < c.w; c.fromBuf {
		n := copy(p, c.buf[c.r:c.w])
		c.r += n
		return n, nil
	}
	c.deadline(c.srv.opt.StallTimeout)
	n, err := c.net.Read(p)
	if n > 0 {
		return n, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.aborted.Load() {
		return 0, relay.Errorf(relay.CodeRequestTimeout, "no byte of the request came for %v", c.srv.opt.StallTimeout)
	}
	return 0, err
}

// Unread gives back the end of what the last Read gave.
func (c *conn) Unread(p []byte) {
	if c.fromBuf {
		c.r -= min(len(p), c.r)
		return
	}
	if len(p) == 0 {
		return
	}
	c.r, c.w = 0, 0
	if len(p) > len(c.buf) {
		c.grow(len(p))
	}
	c.w = copy(c.buf, p)
}

// Write sends bytes as they are; movingConn keeps watch over callers that do not
// read.
func (c *conn) Write(p []byte) (int, error) { return c.net.Write(p) }

// Presence tells whether the caller is still there.
func (c *conn) Presence() relay.Presence {
	if s, ok := bottom(c.raw.Conn).(syscall.Conn); ok {
		return presence(s)
	}
	return relay.CallerPresent
}

// DisableWriteTimeout takes the stall timeout away from further writes, for a connection that
// was upgraded; Read still reports each stall as a request-timeout and may be called
// again.
func (c *conn) DisableWriteTimeout() {
	c.raw.patient.Store(true)
	_ = c.raw.Conn.SetWriteDeadline(time.Time{})
}

// CloseWrite ends our side in order.
func (c *conn) CloseWrite() error {
	if c.secure {
		if t, ok := c.net.(interface{ CloseWrite() error }); ok {
			if err := t.CloseWrite(); err != nil {
				return err
			}
		}
	}
	return c.raw.CloseWrite()
}

// Abort breaks the connection: no close_notify, a reset instead of FIN.
func (c *conn) Abort() {
	if !c.aborted.Swap(true) {
		c.raw.reset()
	}
}

// Bounds of a lingering close.
const (
	lingerTime  = 3 * time.Second  // and as long as it takes at slowPace to send what came
	lingerMost  = 30 * time.Second // with that
	lingerBytes = 64 << 20
	lingerHead  = 256 << 10 // of a refused head, where heads have no limit
)

// closeOrderly ends our side, then discards what the caller still sends, for a
// while: closing a socket with unread input resets it, and a reset can take the
// answer away from a caller who has not read it yet. Meanwhile the connection may
// lose its place to others.
func (c *conn) closeOrderly() {
	if c.aborted.Load() || c.CloseWrite() != nil {
		return
	}
	c.raw.seat.wait()
	c.rewind() // what it has sent of a head may be large
	b, _ := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	begun, most := time.Now(), lingerMost
	for n := 0; n < lingerBytes; {
		wait := lingerTime + time.Duration(n)*time.Second/slowPace
		_ = c.raw.SetReadDeadline(begun.Add(min(wait, most)))
		if most == lingerMost && c.srv.isClosed() { // asked now, as hasten sets the deadline once it is closed
			most = min(time.Since(begun)+hasteGrace, most)
			_ = c.raw.SetReadDeadline(begun.Add(most))
		}
		k, err := c.raw.Read(*b)
		if n += k; err != nil {
			return
		}
	}
}
