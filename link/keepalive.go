package link

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Keepalive configures the check whether a peer is alive; every byte from the peer counts as a sign of
// life. A peer that is silent for Interval is pinged. If it stays silent for Timeout, the connection
// becomes stale until its next byte. A connection that is stale for Close is closed. With Interval 0 no
// ping is sent for silence, and with Close 0 a stale connection stays open.
type Keepalive struct {
	Interval, Timeout, Close time.Duration
	// Stale is called when the connection becomes stale, and Back when it recovers. No call of
	// WithStale runs during these calls.
	Stale, Back func()
}

// pulse is the state of the keepalive of a connection. It needs no goroutine: its timer calls
// Conn.keepalive.
type pulse struct {
	stale          atomic.Bool // changed only while the mutex state is locked
	state          sync.Mutex  // keeps the calls of Stale and Back in order
	byteWhileStale atomic.Bool

	timer atomic.Pointer[time.Timer] // nil before the handshake

	mu                 sync.Mutex
	pinged, staleSince time.Duration // times since the start of the socket; 0 = not pinged, or not stale
}

func (c *Conn) startKeepalive() {
	timer := time.AfterFunc(time.Hour, func() { c.Go("keepalive", c.keepalive) })
	c.pulse.timer.Store(timer)
	c.resetKeepalive(c.keepalivePause(0, 0))
}

// resetKeepalive sets the timer, so that keepalive is called after the given time, unless the
// connection has ended.
func (c *Conn) resetKeepalive(after time.Duration) {
	timer := c.pulse.timer.Load()
	timer.Reset(after)
	if c.ctx.Err() != nil {
		timer.Stop()
	}
}

// stopKeepalive stops the timer. It is called after the context has ended.
func (c *Conn) stopKeepalive() {
	if timer := c.pulse.timer.Load(); timer != nil {
		timer.Stop()
	}
}

// WithStale calls f, and tells it whether the connection is stale. This cannot change during the call.
func (c *Conn) WithStale(f func(stale bool)) {
	c.pulse.state.Lock()
	defer c.pulse.state.Unlock()
	f(c.pulse.stale.Load())
}

// noteByte is called for every read of the socket that returned bytes.
func (c *Conn) noteByte() {
	if c.pulse.stale.Load() && !c.pulse.byteWhileStale.Swap(true) {
		c.Go("keepalive", c.keepalive)
	}
}

// keepalive does what is due: it sends a ping, makes the connection stale, ends the stale state or closes
// the connection. Then it sets the timer for its next call.
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
			c.Close(Silent, "quiet", now-last)
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

// keepalivePause returns the time until keepalive has work to do. now and last, the time of the peer's
// last byte, are times since the start of the socket.
func (c *Conn) keepalivePause(now, last time.Duration) time.Duration {
	o, p := &c.o.Keepalive, &c.pulse
	next := time.Hour
	switch {
	case p.stale.Load():
		if o.Close > 0 {
			next = p.staleSince + o.Close - now
		}
	case p.pinged != 0:
		// The pause is at most Interval, because a ping that was answered is followed by the next one after
		// Interval.
		next = min(p.pinged+o.Timeout-now, o.Interval)
	case o.Interval > 0:
		next = last + o.Interval - now
	}
	return max(next, time.Millisecond)
}

// GoStale makes the connection stale, unless a byte has arrived since Socket.Heard returned the value
// heard.
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

// pingRequest is the request type that OpenSSH uses for its pings. Every peer answers it, at least with a
// refusal.
const pingRequest = "keepalive@openssh.com"

// Ping sends a ping and does not wait for the answer. While an earlier ping waits for its answer, Ping
// only notes that another one is needed, because TCP retransmits the earlier one. The other one is
// still sent after that answer, because the peer may have sent the answer before the call of Ping. Ping
// needs the handshake.
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

// RoundTrip returns once the peer has answered a ping, and the handlers have got all channels and
// global requests that the peer sent before that answer. A handler must not call RoundTrip.
func (c *Conn) RoundTrip(ctx context.Context) error {
	if _, _, err := c.SendRequest(ctx, pingRequest, true, nil); err != nil {
		return err
	}
	taken := make(chan struct{})
	select {
	case c.barriers <- taken:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrLost
	}
	select {
	case <-taken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrLost
	}
}

// Watch pings the peer once in each duration ping, and checks once in each duration look whether bytes
// have arrived, until ctx or the connection ends. When as many checks in a row as looks says have found no
// byte, it closes the connection.
//
// Silence is counted in checks and not measured by a clock: while this process is stopped or this
// machine sleeps, there are no checks, so the peer gets its full time afterwards. Watch needs the
// handshake.
func (c *Conn) Watch(ctx context.Context, ping, look time.Duration, looks int) {
	pings, tick := time.NewTicker(ping), time.NewTicker(look)
	defer pings.Stop()
	defer tick.Stop()
	heard := c.Sock.Heard()
	for silent := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.ctx.Done():
			return
		case <-pings.C:
			c.Ping()
		case <-tick.C:
			if now := c.Sock.Heard(); now != heard {
				silent, heard = 0, now
			} else if silent++; silent >= looks {
				c.Close(Silent, "quiet", time.Duration(looks)*look)
				return
			}
		}
	}
}
