package delivery_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// stream is one direction of bytes in memory, unbounded unless window is set; a negative window takes
// nothing.
type stream struct {
	mu     sync.Mutex
	cond   *sync.Cond
	buf    []byte
	window int
	end    error  // the error after buf: io.EOF or a failure
	hook   func() // called under mu after each change
}

func newStream() *stream {
	s := &stream{}
	s.cond = sync.NewCond(&s.mu)
	return s
}

func (s *stream) changed() {
	s.cond.Broadcast()
	if s.hook != nil {
		s.hook()
	}
}

func (s *stream) write(p []byte) (n int, err error) { return s.writeBy(p, time.Time{}) }

// writeBy writes p, at most until the time by; zero = without limit.
func (s *stream) writeBy(p []byte, by time.Time) (n int, err error) {
	if !by.IsZero() {
		t := time.AfterFunc(time.Until(by), func() {
			s.mu.Lock()
			s.cond.Broadcast()
			s.mu.Unlock()
		})
		defer t.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.end != nil {
			return n, io.ErrClosedPipe
		}
		k := len(p) - n
		if s.window != 0 {
			k = min(k, max(s.window, 0)-len(s.buf))
		}
		if k > 0 {
			s.buf = append(s.buf, p[n:n+k]...)
			n += k
			s.changed()
		}
		if n == len(p) {
			return n, nil
		}
		if !by.IsZero() && !time.Now().Before(by) {
			return n, os.ErrDeadlineExceeded
		}
		s.cond.Wait()
	}
}

func (s *stream) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		s.end = err
		s.changed()
	}
}

var errLate = errors.New("deadline")

// read waits for bytes or for the end of the stream. After d (0 = without limit) it returns errLate.
func (s *stream) read(p []byte, d time.Duration) (int, error) {
	late := false
	if d > 0 {
		t := time.AfterFunc(d, func() {
			s.mu.Lock()
			late = true
			s.cond.Broadcast()
			s.mu.Unlock()
		})
		defer t.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.buf) == 0 && s.end == nil && !late {
		s.cond.Wait()
	}
	if len(s.buf) == 0 {
		if s.end != nil {
			return 0, s.end
		}
		return 0, errLate
	}
	n := copy(p, s.buf)
	s.buf = s.buf[:copy(s.buf, s.buf[n:])]
	s.cond.Broadcast()
	return n, nil
}

// memTunnel is a tunnel to a local server that is a function.
type memTunnel struct {
	serve func(*local) // called for each connection
	lazy  bool
	info  relay.TunnelInfo
	// window is the number of unread bytes of a request that a channel takes; 0 = any number.
	window int
	// endsWithLast makes a read that returns the last bytes return the end of the channel too.
	endsWithLast bool
	// most is the number of connections that the client can have at once, because of its file
	// descriptors; 0 = any number.
	most int

	mu       sync.Mutex
	alive    int
	heard    time.Duration
	openErr  error
	hang     bool // the client does not answer channel opens
	opened   int
	origins  []netip.AddrPort
	closed   []string
	dead     []error // the error of the first write on each of the next channels
	channels []*memChannel
	refusal  *relay.Error
	wg       sync.WaitGroup
}

func (t *memTunnel) Open(ctx context.Context, origin netip.AddrPort) (relay.Conn, error) {
	t.mu.Lock()
	hang, err := t.hang, t.openErr
	t.origins = append(t.origins, origin)
	t.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, relay.ErrNotSent
	}
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	full := t.most > 0 && t.alive == t.most
	if !full {
		t.alive++
	}
	t.mu.Unlock()
	if full {
		return nil, relay.Errorf(relay.CodeLocalRefused, "no descriptors")
	}
	c := &memChannel{t: t, up: newStream(), down: newStream(), ready: make(chan struct{}, 1)}
	c.down.hook = c.signal
	t.mu.Lock()
	c.up.window = t.window
	t.opened++
	if len(t.dead) > 0 {
		c.dead, t.dead = t.dead[0], t.dead[1:]
	}
	t.channels = append(t.channels, c)
	t.mu.Unlock()
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		l := &local{c: c}
		t.serve(l)
		l.Close()
		t.set(func() { t.alive-- })
	}()
	return c, nil
}

func (t *memTunnel) Heard() time.Duration { t.mu.Lock(); defer t.mu.Unlock(); return t.heard }
func (t *memTunnel) LazyDial() bool       { return t.lazy }
func (t *memTunnel) Info() relay.TunnelInfo {
	return t.info
}

func (t *memTunnel) Close(reason string) {
	t.mu.Lock()
	t.closed = append(t.closed, reason)
	t.mu.Unlock()
}

func (t *memTunnel) set(f func()) { t.mu.Lock(); f(); t.mu.Unlock() }

func (t *memTunnel) count() int { t.mu.Lock(); defer t.mu.Unlock(); return t.opened }

// cutAll ends every channel, as the end of the connection does.
func (t *memTunnel) cutAll() {
	t.mu.Lock()
	list := t.channels
	t.mu.Unlock()
	for _, c := range list {
		c.up.finish(io.ErrUnexpectedEOF)
		c.down.finish(io.EOF)
	}
}

// memChannel implements relay.Conn.
type memChannel struct {
	noAddr
	t     *memTunnel
	up    *stream // bytes to the local server
	down  *stream // bytes from the local server
	ready chan struct{}
	dead  error // error of the next write

	writeBy atomic.Pointer[time.Time]
}

func (c *memChannel) Write(p []byte) (int, error) {
	if c.dead != nil {
		return 0, c.dead
	}
	if by := c.writeBy.Load(); by != nil {
		return c.up.writeBy(p, *by)
	}
	return c.up.write(p)
}

func (c *memChannel) SetWriteDeadline(t time.Time) error { c.writeBy.Store(&t); return nil }

func (c *memChannel) Read(p []byte) (int, error) {
	n, err := c.down.read(p, 0)
	c.down.mu.Lock()
	defer c.down.mu.Unlock()
	if c.t.endsWithLast && err == nil && len(c.down.buf) == 0 {
		err = c.down.end
	}
	return n, err
}

func (c *memChannel) Ready() <-chan struct{} {
	c.down.mu.Lock()
	defer c.down.mu.Unlock()
	select {
	case <-c.ready:
	default:
	}
	c.signal()
	return c.ready
}

// signal makes Ready readable if a Read would not block; the caller holds down.mu.
func (c *memChannel) signal() {
	if len(c.down.buf) > 0 || c.down.end != nil {
		select {
		case c.ready <- struct{}{}:
		default:
		}
	}
}

func (c *memChannel) End(time.Duration) relay.ConnEnd {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	return relay.ConnEnd{Refusal: c.t.refusal}
}

// noAddr implements the address and deadline methods of net.Conn, which nothing calls.
type noAddr struct{}

func (noAddr) LocalAddr() net.Addr             { return nil }
func (noAddr) RemoteAddr() net.Addr            { return nil }
func (noAddr) SetDeadline(time.Time) error     { return nil }
func (noAddr) SetReadDeadline(time.Time) error { return nil }

func (c *memChannel) CloseWrite() error { c.up.finish(io.EOF); return nil }

func (c *memChannel) Close() error {
	c.up.finish(io.EOF)
	c.down.finish(io.ErrClosedPipe)
	return nil
}

// local is the local server's end of a connection.
type local struct {
	c   *memChannel
	got []byte // all bytes that were read
}

func (l *local) Write(s string) bool {
	_, err := l.c.down.write([]byte(s))
	return err == nil
}

// Close ends the local server's side.
func (l *local) Close() { l.c.down.finish(io.EOF) }

// Break ends the local server's side like a broken connection.
func (l *local) Break() { l.c.down.finish(io.ErrUnexpectedEOF) }

// until reads the request until it contains the text want. It returns false if the request ends first.
func (l *local) until(want string) bool {
	b := make([]byte, 32<<10)
	for !contains(l.got, want) {
		n, err := l.c.up.read(b, 0)
		l.got = append(l.got, b[:n]...)
		if err != nil {
			return contains(l.got, want)
		}
	}
	return true
}

// n reads until n bytes were read in total. It returns false if the request ends first.
func (l *local) n(n int) bool {
	b := make([]byte, 32<<10)
	for len(l.got) < n {
		k, err := l.c.up.read(b, 0)
		l.got = append(l.got, b[:k]...)
		if err != nil {
			return len(l.got) >= n
		}
	}
	return true
}

// hang reads nothing until the tunnel has closed the connection.
func (l *local) hang() {
	s := l.c.up
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.end == nil {
		s.cond.Wait()
	}
}

// ended reads everything that the tunnel sends.
func (l *local) ended() {
	b := make([]byte, 32<<10)
	for {
		n, err := l.c.up.read(b, 0)
		l.got = append(l.got, b[:n]...)
		if err != nil {
			return
		}
	}
}
