package delivery_test

import (
	"errors"
	"io"
	"sync"
	"time"

	"relay"
)

// memCaller is a caller's connection; the test holds its other end.
type memCaller struct {
	in, out *stream
	stall   time.Duration
	head    []byte // buffered bytes of the request
	mu      sync.Mutex
	aborted bool
	halved  bool
	unread  []byte
	deaf    error // the error of each write; nil = writes succeed
	state   relay.Presence
	reads   int
	raced   bool // the exchange has read from the connection while Left ran
}

// Presence returns the state that become has set.
func (c *memCaller) Presence() relay.Presence { c.mu.Lock(); defer c.mu.Unlock(); return c.state }

// Left reports whether the caller has reset the connection. If the caller has closed its side, Left waits a
// moment, as in package server, and sets raced if a read began in that time.
func (c *memCaller) Left() bool {
	if c.Presence() != relay.CallerHalfClosed {
		return c.Presence() == relay.CallerReset
	}
	reads := c.countReads(0)
	time.Sleep(10 * time.Millisecond)
	if c.countReads(0) != reads {
		c.mu.Lock()
		c.raced = true
		c.mu.Unlock()
	}
	return c.Presence() == relay.CallerReset
}

func (c *memCaller) countReads(more int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads += more
	return c.reads
}

// onWrite calls f after each write from now on.
func (c *memCaller) onWrite(f func()) { c.out.mu.Lock(); c.out.hook = f; c.out.mu.Unlock() }

// failWrites makes each further write fail.
func (c *memCaller) failWrites() { c.mu.Lock(); c.deaf = errors.New("reset"); c.mu.Unlock() }

// become sets the result of Presence.
func (c *memCaller) become(p relay.Presence) { c.mu.Lock(); c.state = p; c.mu.Unlock() }

func newCaller(buffered string) *memCaller {
	return &memCaller{in: newStream(), out: newStream(), stall: 30 * time.Second, head: []byte(buffered)}
}

func (c *memCaller) Buffered() int { return len(c.head) }

func (c *memCaller) Read(p []byte) (int, error) {
	c.countReads(1)
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	n, err := c.in.read(p, c.stall)
	if err == errLate {
		return n, relay.Errorf(relay.CodeRequestTimeout, "stalled")
	}
	return n, err
}

func (c *memCaller) Unread(p []byte) {
	c.unread = append([]byte(nil), p...)
	c.head = append(c.unread[:len(c.unread):len(c.unread)], c.head...)
}

func (c *memCaller) Write(p []byte) (int, error) {
	c.mu.Lock()
	err := c.deaf
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.out.write(p)
}

func (c *memCaller) CloseWrite() error {
	c.mu.Lock()
	c.halved = true
	c.mu.Unlock()
	c.out.finish(io.EOF)
	return nil
}

func (c *memCaller) Abort() {
	c.mu.Lock()
	c.aborted = true
	c.mu.Unlock()
	c.in.finish(io.ErrClosedPipe)
	c.out.finish(io.ErrClosedPipe)
}

// answer returns everything that was written to the caller so far.
func (c *memCaller) answer() string {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return string(c.out.buf)
}

func (c *memCaller) wasAborted() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.aborted }

func (c *memCaller) wasHalved() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.halved }

func (c *memCaller) DisableWriteTimeout() {}
func (c *memCaller) ResetOnCrash()        {}
