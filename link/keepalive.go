package link

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Keepalive says how a connection follows its peer's pulse: a byte, any byte, is a sign of life. A
// peer that is quiet for Interval is pinged; one that stays quiet for Timeout makes the connection
// stale, until its next byte. A connection that is stale for Close is closed. 0 = off.
type Keepalive struct {
	Interval, Timeout, Close time.Duration
	// Stale and Back are called in turn, as the connection becomes stale and as it is not any
	// more; no call of WithStale runs meanwhile.
	Stale, Back func()
}

// pulse is the state of the keepalive of a connection. There is no goroutine for it: the timer
// calls Conn.keepalive.
type pulse struct {
	stale          atomic.Bool // changed with state held
	state          sync.Mutex  // orders Stale and Back
	byteWhileStale atomic.Bool

	timer atomic.Pointer[time.Timer] // nil before the handshake

	mu                 sync.Mutex
	pinged, staleSince time.Duration // since the start of the socket; 0 = no
}

func (c *Conn) startKeepalive() {
	timer := time.AfterFunc(time.Hour, func() { c.Go("keepalive", c.keepalive) })
	c.pulse.timer.Store(timer)
	c.resetKeepalive(c.keepalivePause(0, 0))
}

// resetKeepalive has keepalive called after a time, unless the connection has ended.
func (c *Conn) resetKeepalive(after time.Duration) {
	timer := c.pulse.timer.Load()
	timer.Reset(after)
	if c.ctx.Err() != nil {
		timer.Stop()
	}
}

// stopKeepalive is called after the context has ended.
func (c *Conn) stopKeepalive() {
	if timer := c.pulse.timer.Load(); timer != nil {
		timer.Stop()
	}
}

// WithStale calls f with the state, which does not change meanwhile.
func (c *Conn) WithStale(f func(stale bool)) {
	c.pulse.state.Lock()
	defer c.pulse.state.Unlock()
	f(c.pulse.stale.Load())
}

// noteByte is called for every read of the socket.
func (c *Conn) noteByte() {
	if c.pulse.stale.Load() && !c.pulse.byteWhileStale.Swap(true) {
		c.Go("keepalive", c.keepalive)
	}
}

// keepalive sends a ping or ends the connection, when either is due.
func (c *Conn) keepalive() {
	o, p := &c.o.Keepalive, &c.pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byteWhileStale.Swap(false) {
		c.goBack()
		p.pinged, p.staleSince = 0, 0
	}
	now, last := time.Duration(c.Sock.now()), time.Duration(c.Sock.lastHeard())
	if p.pinged != 0 && last > p.pinged {
		p.pinged = 0
	}
	switch {
	case p.stale.Load():
		if p.staleSince == 0 {
			p.staleSince = now
			c.Ping()
		}
		if o.Close > 0 && now-p.staleSince >= o.Close {
			c.Log().Info("silent ssh connection closed", "quiet", now-last)
			_ = c.Close()
			return
		}
	case o.Interval > 0 && p.pinged == 0 && now-last >= o.Interval:
		p.pinged = now
		c.Ping()
	case p.pinged != 0 && now-p.pinged >= o.Timeout:
		if c.GoStale(int64(last)); p.stale.Load() {
			p.staleSince = now
		}
	}
	c.resetKeepalive(c.keepalivePause(now, last))
}

// keepalivePause returns the time until keepalive has work to do; mu is held.
func (c *Conn) keepalivePause(now, last time.Duration) time.Duration {
	o, p := &c.o.Keepalive, &c.pulse
	next := time.Hour
	switch {
	case p.stale.Load():
		if o.Close > 0 {
			next = p.staleSince + o.Close - now
		}
	case p.pinged != 0:
		next = min(p.pinged+o.Timeout-now, o.Interval) // to ping again soon where it was answered
	case o.Interval > 0:
		next = last + o.Interval - now
	}
	return max(next, time.Millisecond)
}

// GoStale makes the connection stale, unless a byte came after the one that Socket.Heard told.
func (c *Conn) GoStale(heard int64) {
	p := &c.pulse
	p.state.Lock()
	defer p.state.Unlock()
	if c.Sock.lastHeard() != heard || p.stale.Swap(true) {
		return
	}
	c.Log().Info("ssh peer is silent", "quiet", c.Sock.SilentFor())
	c.o.Keepalive.Stale()
	if c.Sock.heard.Load() != heard {
		c.noteByte()
	}
	c.Go("keepalive", c.keepalive)
}

// goBack ends the stale state.
func (c *Conn) goBack() {
	p := &c.pulse
	p.state.Lock()
	defer p.state.Unlock()
	if p.stale.Swap(false) {
		c.Log().Info("ssh peer is back")
		c.o.Keepalive.Back()
	}
}

// pingRequest is the request type that OpenSSH uses for its pings. Each peer answers it, by a refusal at least.
const pingRequest = "keepalive@openssh.com"

// Ping asks for a sign of life and does not wait for it. While one ping waits for its answer there
// is no use in another, TCP repeats it. But that one may be answered and not know it yet, so
// another follows. It needs the handshake.
func (c *Conn) Ping() {
	if c.pings.Add(1) > 1 {
		return
	}
	c.Go("ping", func() {
		for {
			asked := c.pings.Load()
			if _, _, err := c.ssh.SendRequest(pingRequest, true, nil); err != nil || c.pings.CompareAndSwap(asked, 0) {
				return
			}
		}
	})
}

// RoundTrip returns once the peer has answered a ping. Everything that it sent before has then arrived.
func (c *Conn) RoundTrip(ctx context.Context) error {
	_, _, err := c.SendRequest(ctx, pingRequest, true, nil)
	return err
}

// Watch pings the peer each time that ping passes, and looks for bytes of it each time that look
// passes. At the end of ctx it returns nil; after looks in a row that found none it closes the
// connection and returns a *SilentError, and where the connection ends otherwise, ErrLost.
//
// Silence is counted in looks and not taken from a clock: while this process is stopped or this
// machine sleeps no looks happen, so the peer gets its full time afterwards. It needs the
// handshake.
func (c *Conn) Watch(ctx context.Context, ping, look time.Duration, looks int) error {
	pings, tick := time.NewTicker(ping), time.NewTicker(look)
	defer pings.Stop()
	defer tick.Stop()
	heard := c.Sock.Heard()
	for silent := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.ctx.Done():
			return ErrLost
		case <-pings.C:
			c.Ping()
		case <-tick.C:
			if now := c.Sock.Heard(); now != heard {
				silent, heard = 0, now
			} else if silent++; silent >= looks {
				_ = c.Close()
				return &SilentError{time.Duration(looks) * look}
			}
		}
	}
}

// SilentError ends the connection of a peer of which no byte came for so long.
type SilentError struct{ For time.Duration }

// Error implements error.
func (e *SilentError) Error() string { return fmt.Sprintf("no byte for %v", e.For) }
