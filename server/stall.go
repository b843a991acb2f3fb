package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"relay/admission"
	"relay/sockets"
	"relay/waits"
)

// writePiece is the largest number of bytes that are written under one deadline.
const writePiece = 64 << 10

// stallConn is a caller's socket. A write fails if the caller's system has taken no byte for the stall time;
// if stallConn notices that late, because the process was stopped, it tries again. Close releases the
// connection's slot. TLS runs above stallConn, because crypto/tls cannot continue a write that timed out.
//
// A caller that reads slowly looks silent for a while, because its system announces free receive
// buffer in steps. Linux was seen to announce 95 KiB at a time with default buffers on loopback, and
// 380 KiB with a large receive buffer. A caller that reads 512 KiB within the stall time, 17 KiB/s by
// default, is not cut (measured: stall_test).
type stallConn struct {
	net.Conn
	stall time.Duration // 0 = writes never time out
	slot  admission.Slot

	noTimeout atomic.Bool // DisableWriteTimeout was called

	mu            sync.Mutex
	outerDeadline time.Time // write deadline that crypto/tls or net/http has set
	armed         time.Time // the write deadline that armDeadline has set; zero = none
}

// slack makes the moves of a deadline rare, because a move costs more than reading the clock. A deadline that
// many requests share is set a sixteenth of the timeout later than needed, and moved only when less than the
// timeout is left.
const slack = 16

// Write sends p in pieces, each with its own deadline. It continues a piece of which the
// system has taken only a part.
func (c *stallConn) Write(p []byte) (int, error) {
	// again: the last deadline was noticed late, and nothing was taken
	for sent, again := 0, false; ; {
		limit := c.armDeadline()
		n, err := c.Conn.Write(p[sent:min(sent+writePiece, len(p))])
		sent += n
		switch {
		case err == nil && sent == len(p):
			return sent, nil
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded), n == 0 && (again || !waits.IsLate(limit, time.Now())):
			return sent, err
		default:
			again = n == 0
			c.mu.Lock()
			outer := c.outerDeadline
			c.mu.Unlock()
			if !outer.IsZero() && !time.Now().Before(outer) {
				return sent, err
			}
		}
	}
}

// armDeadline sets and returns the deadline of the next piece: at least the stall time from now, or
// outerDeadline if that is earlier.
func (c *stallConn) armDeadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stall <= 0 || c.noTimeout.Load() {
		_ = c.Conn.SetWriteDeadline(c.outerDeadline)
		return c.outerDeadline
	}
	now := time.Now()
	if c.armed.Sub(now) >= c.stall {
		return c.armed
	}
	c.armed = now.Add(c.stall + c.stall/slack)
	if outer := c.outerDeadline; !outer.IsZero() && outer.Before(c.armed) {
		c.armed = outer
	}
	_ = c.Conn.SetWriteDeadline(c.armed)
	return c.armed
}

// Close closes the connection and releases its slot.
func (c *stallConn) Close() error {
	c.slot.Release()
	return c.Conn.Close()
}

// SetWriteDeadline sets a deadline in addition to that of the stall time.
func (c *stallConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outerDeadline, c.armed = t, time.Time{}
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline sets the read deadline and the write deadline.
func (c *stallConn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// CloseWrite sends FIN if the connection supports it.
func (c *stallConn) CloseWrite() error { return sockets.HalfClose(c.Conn) }

// stallReader sets a new read deadline with every read of a request body, and removes the deadline at
// the end of the body, so that the handler may take any time. After an error the deadline stays:
// otherwise net/http would wait forever for the rest of the body before it sends the answer.
type stallReader struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
}

func (b *stallReader) setDeadline() { _ = b.control.SetReadDeadline(time.Now().Add(b.stall)) }

// Read reads with a new deadline.
func (b *stallReader) Read(p []byte) (int, error) {
	b.setDeadline()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// streamPiece is the largest number of bytes of an HTTP/2 response that are written under one
// deadline.
const streamPiece = 16 << 10

// stallWriter bounds the time for which an HTTP/2 response waits for a flow control window. While it
// waits nothing is written to the socket, so stallConn sees no stall: without the bound, a viewer that
// opens no window would hold the handlers of all its streams, and the connection, forever. Between
// writes there is no deadline, because a stream may be silent.
type stallWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

func (a *stallWriter) setDeadline()   { _ = a.control.SetWriteDeadline(time.Now().Add(a.stall)) }
func (a *stallWriter) clearDeadline() { _ = a.control.SetWriteDeadline(time.Time{}) }

// Write writes in pieces, each with a new deadline.
func (a *stallWriter) Write(p []byte) (n int, err error) {
	defer a.clearDeadline()
	for {
		a.setDeadline()
		k, err := a.ResponseWriter.Write(p[n:min(n+streamPiece, len(p))])
		if n += k; err != nil || n == len(p) {
			return n, err
		}
	}
}

// FlushError implements the interface that http.ResponseController looks for.
func (a *stallWriter) FlushError() error {
	defer a.clearDeadline()
	a.setDeadline()
	return a.control.Flush()
}

// Flush implements http.Flusher.
func (a *stallWriter) Flush() { _ = a.FlushError() }

// Unwrap lets http.ResponseController find the method that sets read deadlines.
func (a *stallWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }
