package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"relay"
	"relay/admission"
	"relay/sockets"
	"relay/waits"
	"relay/wire"
)

// Phases of a connection, for Shutdown and metrics.
const (
	phaseNew    int32 = iota // no byte was read, or the TLS handshake is not complete
	phaseIdle                // waits for another request
	phaseHead                // reads a head
	phaseBusy                // a capture is running
	phaseLinger              // everything was sent; waits for the caller to close
)

// conn is a connection that carries requests to aliases. It implements relay.Caller for its requests.
// One goroutine serves the connection; a capture may read in a second one. Abort may be called from any goroutine.
type conn struct {
	srv    *Server
	sock   *stallConn
	peer   *peer
	net    net.Conn    // sock, or the TLS connection over it
	tls    *tls.Config // nil = plain HTTP
	from   netip.AddrPort
	secure bool
	sni    route // route of the TLS server name
	handed bool  // the connection was handed over to net/http
	linger bool  // the connection is to be closed with closeOrderly
	served bool  // the connection has had a request
	// emptyLines is the number of bytes of empty lines that were skipped since the last request.
	emptyLines int

	phase      atomic.Int32
	aborted    atomic.Bool
	crashReset bool // ResetOnCrash was called

	// buf[r:w] holds bytes that were read and not consumed yet. buf is smallBuf while the connection is
	// idle, and a larger buffer for a head that does not fit.
	buf     []byte
	r, w    int
	fromBuf bool // the bytes that the last Read returned came from buf
	arrived time.Time
	body    bodyMeter
	until   time.Time // the read deadline
	// idleUntil is the read deadline that deadlineOfIdle has set.
	idleUntil time.Time
	smallBuf  [2 << 10]byte
}

// bodyMeter measures how fast the caller sends the body of the current request.
type bodyMeter struct {
	bytes  int64
	waited time.Duration // time spent in reads; the caller is not blamed for time in which the relay does not read
}

// errCallerGone means that no caller waits for an answer: the caller has closed the connection, or sent
// no byte of another request within the idle timeout.
var errCallerGone = errors.New("caller gone")

// rewind makes smallBuf the buffer. There must be no buffered bytes.
func (c *conn) rewind() { c.buf, c.r, c.w = c.smallBuf[:], 0, 0 }

// grow moves the buffered bytes to the start of a buffer of at least size bytes.
func (c *conn) grow(size int) {
	larger := make([]byte, max(size, 4*len(c.buf)))
	c.buf, c.r, c.w = larger, 0, copy(larger, c.buf[c.r:c.w])
}

// readHead reads until a request head is complete. h refers to the next n bytes of the buffer, and is
// valid until the next read. An error is a *relay.Error to answer with, or errCallerGone.
func (c *conn) readHead() (h *wire.Head, n int, err error) {
	if c.w == c.r {
		c.rewind()
	}
	c.emptyLines = 0
	if c.onlyEmptyLines() {
		if err := c.firstByte(); err != nil {
			return nil, 0, err
		}
	}
	c.arrived = time.Now()
	c.phase.Store(phaseHead)
	limits := c.srv.limits
	for {
		h, n, err = wire.Request(c.buf[c.r:c.w], limits)
		if !errors.Is(err, wire.ErrMore) {
			return h, n, err
		}
		if limits.Seen == 0 {
			c.deadlineOfHead()
		}
		limits.Seen = c.w - c.r
		more, err := c.fill()
		switch {
		case more > 0 || err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && c.srv.stopping.Load():
			return nil, 0, errStopping
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, 0, relay.Errorf(relay.CodeRequestTimeout, "the request head was not complete within %v", c.srv.opt.HeadTimeout)
		case errors.Is(err, io.EOF):
			return nil, 0, relay.Errorf(relay.CodeRequestMalformed, "the connection ended inside the request head")
		default:
			return nil, 0, errCallerGone
		}
	}
}

// deadlineOfHead limits the time in which the rest of a head must arrive: HeadTimeout, and after Shutdown has
// closed the listeners only lingerGrace, so that a slow head cannot delay the end of Shutdown.
func (c *conn) deadlineOfHead() {
	c.deadline(c.srv.opt.HeadTimeout)
	if c.srv.isClosed() {
		c.deadline(lingerGrace)
	}
}

// firstByte waits for the first byte of another request, for at most the idle timeout. It skips empty
// lines before a request (RFC 9112, section 2.2).
func (c *conn) firstByte() error {
	c.sock.slot.SetClass(admission.Idle)
	c.deadlineOfIdle()
	for c.onlyEmptyLines() {
		if n, err := c.fill(); n == 0 && err != nil {
			return errCallerGone
		}
	}
	if !c.sock.slot.SetClass(admission.Busy) {
		return errCallerGone
	}
	return nil
}

// maxEmptyLines is the largest number of bytes of empty lines that are skipped before a request.
const maxEmptyLines = 8

// onlyEmptyLines reports whether no byte of another request has arrived yet. It skips the empty lines that
// some senders write after a body: CRLF or LF, maxEmptyLines bytes in total. It skips none before the first
// request of a connection, because package wire skips one CRLF there.
func (c *conn) onlyEmptyLines() bool {
	for p := c.buf[c.r:c.w]; c.served && c.emptyLines < maxEmptyLines; p = c.buf[c.r:c.w] {
		n := 0
		switch {
		case bytes.HasPrefix(p, []byte("\n")):
			n = 1
		case bytes.HasPrefix(p, []byte("\r\n")):
			n = 2
		}
		if n == 0 {
			break
		}
		c.r += n
		c.emptyLines += n
	}
	p := c.buf[c.r:c.w]
	return len(p) == 0 || len(p) <= 2 && bytes.HasPrefix([]byte("\r\n"), p)
}

// fill reads bytes of a head into buf. If buf is full, it moves the buffered bytes to the start, or
// grows buf.
func (c *conn) fill() (int, error) {
	switch {
	case c.w < len(c.buf):
	case c.r > 0:
		c.r, c.w = 0, copy(c.buf, c.buf[c.r:c.w])
	default:
		c.grow(len(c.buf) + 1)
	}
	n, err := c.read(c.buf[c.w:])
	c.w += n
	return n, err
}

// read reads from the connection. If the deadline is noticed late, it reads once more, because bytes may have
// arrived in time.
func (c *conn) read(p []byte) (int, error) {
	n, err := c.net.Read(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && waits.IsLate(c.until, time.Now()) && !c.srv.stopping.Load() {
		c.deadline(waits.CatchUp)
		return c.net.Read(p)
	}
	return n, err
}

// deadlineOfIdle limits the wait for another request. The wait may last the idle timeout, and up to a
// sixteenth longer: see slack.
func (c *conn) deadlineOfIdle() {
	d, now := c.srv.opt.IdleTimeout, time.Now()
	if d > 0 && c.idleUntil.Sub(now) >= d {
		return
	}
	d += d / slack
	c.deadline(d)
	c.idleUntil = now.Add(d)
}

// deadline limits the total time of the following reads to d; 0 = no limit.
func (c *conn) deadline(d time.Duration) {
	c.idleUntil = time.Time{}
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	c.until = t
	_ = c.net.SetReadDeadline(t)
}

// Buffered returns the number of bytes that Read can return without reading from the connection.
func (c *conn) Buffered() int { return c.w - c.r }

// Read returns the buffered bytes first, then reads from the connection. It fails with request-timeout
// if no byte arrives for StallTimeout, or if the body arrives more slowly than MinRate. Read may be
// called again after that error. It then starts a new measurement of the rate, because the caller may
// have waited for 100 Continue.
func (c *conn) Read(p []byte) (int, error) {
	if c.fromBuf = c.r < c.w; c.fromBuf {
		n := copy(p, c.buf[c.r:c.w])
		c.r += n
		c.body.bytes += int64(n)
		return n, nil
	}
	stall, slow := c.srv.opt.StallTimeout, false
	wait := stall
	if rate := c.srv.opt.MinRate; rate > 0 && !c.sock.noTimeout.Load() {
		sent := time.Duration(float64(c.body.bytes) / float64(rate) * float64(time.Second))
		left := max(sent, c.srv.opt.MinRateGrace) - c.body.waited // the time until the average falls below MinRate
		if stall <= 0 || left < stall {
			wait, slow = max(left, time.Nanosecond), true
		}
	}
	c.deadline(wait)
	begun, until := time.Now(), c.until
	n, err := c.read(p)
	now := time.Now()
	c.body.waited += now.Sub(begun)
	c.body.bytes += int64(n)
	if waits.IsLate(until, now) {
		// This process was probably suspended for a while. The caller is not blamed for that time, so the
		// measurement of its rate starts again.
		c.body = bodyMeter{}
	}
	switch {
	case n > 0:
		return n, nil
	case !errors.Is(err, os.ErrDeadlineExceeded) || c.aborted.Load():
		return 0, err
	case slow:
		c.body = bodyMeter{}
		return 0, relay.Errorf(relay.CodeRequestTimeout, "the request body is slower than %d bytes a second", c.srv.opt.MinRate)
	}
	return 0, relay.Errorf(relay.CodeRequestTimeout, "no byte of the request came for %v", stall)
}

// Unread returns p, the end of the bytes that the last Read returned, to the buffer.
func (c *conn) Unread(p []byte) {
	c.body.bytes -= int64(len(p))
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

// Write sends p unchanged. It fails if the caller does not read for StallTimeout.
func (c *conn) Write(p []byte) (int, error) { return c.net.Write(p) }

// Presence reports whether the caller is still connected.
func (c *conn) Presence() relay.Presence { return c.peer.presence() }

// Bounds of the time for which Left waits for a reset. If the caller has closed the connection, the
// reset comes after one round trip.
const minLeftWait, maxLeftWait = 10 * time.Millisecond, 300 * time.Millisecond

// Left reports whether the caller has left before it received all written bytes.
func (c *conn) Left() bool {
	var until time.Time
	for {
		switch c.Presence() {
		case relay.CallerReset:
			return true
		case relay.CallerHalfClosed:
		default:
			return false
		}
		if until.IsZero() {
			until = time.Now().Add(min(maxLeftWait, minLeftWait+c.peer.roundTrip()))
		}
		if c.Buffered() > 0 || c.aborted.Load() || !time.Now().Before(until) {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// DisableWriteTimeout removes the time limit of further writes, for a connection that was upgraded. Read
// still returns request-timeout after each StallTimeout without a byte. Read may be called again after that
// error.
func (c *conn) DisableWriteTimeout() {
	c.sock.noTimeout.Store(true)
	c.sock.armDeadline()
}

// ResetOnCrash makes the system reset the connection if the process is killed before
// CloseWrite (SO_LINGER with 0 s).
func (c *conn) ResetOnCrash() {
	c.crashReset = true
	sockets.SetLinger(c.sock.Conn, 0)
}

// CloseWrite ends the sending direction of the server with FIN, over TLS after a close_notify.
func (c *conn) CloseWrite() error {
	if c.crashReset {
		c.crashReset = false
		// This restores the default of Go, which ResetOnCrash has changed.
		sockets.SetLinger(c.sock.Conn, -1)
	}
	if t, ok := c.net.(*tls.Conn); ok {
		if err := t.CloseWrite(); err != nil {
			return err
		}
	}
	return c.sock.CloseWrite()
}

// Abort resets the connection: with RST instead of close_notify and FIN, so that the caller cannot
// mistake a partial response for a complete one.
func (c *conn) Abort() {
	if !c.aborted.Swap(true) {
		sockets.SetLinger(c.sock.Conn, 0)
		_ = c.sock.Close()
	}
}

// Bounds of a lingering close, in which closeOrderly has sent FIN and still reads bytes of the caller.
const (
	lingerTime    = 3 * time.Second  // duration of a lingering close in which no byte is received
	lingerMaxTime = 30 * time.Second // longest lingering close
	lingerPace    = 16 << 10         // for each 16 KiB received, a lingering close may take one second longer
	lingerBytes   = 64 << 20
	lingerMaxHead = 256 << 10 // further bytes that are read of a refused head, if heads have no limit
)

// closeOrderly ends the sending direction of the server, and then discards further bytes of the caller,
// within the bounds above: a connection closed with unread bytes is reset, and the reset may destroy the
// answer. Meanwhile the connection counts as idle and may be evicted.
func (c *conn) closeOrderly() {
	if c.aborted.Load() || c.CloseWrite() != nil {
		return
	}
	c.sock.slot.SetClass(admission.Idle)
	// This frees the large buffer of a head.
	c.rewind()
	begun, most := time.Now(), lingerMaxTime
	if c.srv.isClosed() {
		// If Shutdown begins later, closeRemaining ends the lingering close.
		most = lingerGrace
	}
	_ = sockets.Discard(c.sock, lingerBytes, func(read int64) time.Time {
		return begun.Add(min(lingerTime+time.Duration(read)*time.Second/lingerPace, most))
	})
}
