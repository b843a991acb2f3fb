package sshgate

import (
	"sync"
	"sync/atomic"
	"time"

	"relay"
	"relay/sshgate/shell"
)

// pulse is the state of the keepalive of a connection. There is no goroutine for it: the
// timer calls keepalive.
type pulse struct {
	timer          *time.Timer
	byteWhileStale atomic.Bool

	mu                 sync.Mutex
	pinged, staleSince time.Duration // since the start of the socket; 0 = no
}

// noteByte is called for every read of the socket.
func (c *conn) noteByte() {
	if c.stale.Load() && !c.pulse.byteWhileStale.Swap(true) {
		c.spawn(c.keepalive)
	}
}

// keepalive follows the peer's pulse: a byte, any byte, is a sign of life. A quiet
// peer is pinged; one that stays quiet makes its tunnels stale, and they are
// online again with its next byte. A connection that is stale for long is closed.
func (c *conn) keepalive() {
	o, p := &c.srv.o, &c.pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byteWhileStale.Swap(false) {
		c.goOnline()
		p.pinged, p.staleSince = 0, 0
	}
	now, last := time.Duration(c.sock.now()), time.Duration(c.sock.lastHeard())
	if p.pinged != 0 && last > p.pinged {
		p.pinged = 0
	}
	switch {
	case c.stale.Load():
		if p.staleSince == 0 {
			p.staleSince = now
			c.ping()
		}
		if o.StaleClose > 0 && now-p.staleSince >= o.StaleClose {
			c.log.Info("silent ssh connection closed", "quiet", now-last)
			_ = c.sock.Close()
			return
		}
	case o.PingInterval > 0 && p.pinged == 0 && now-last >= o.PingInterval:
		p.pinged = now
		c.ping()
	case p.pinged != 0 && now-p.pinged >= o.PingTimeout:
		if c.goStale(int64(last)); c.stale.Load() {
			p.staleSince = now
		}
	}
	p.timer.Reset(c.keepalivePause(now, last))
	if c.ctx.Err() != nil {
		p.timer.Stop()
	}
}

// keepalivePause is how long keepalive has nothing to do.
func (c *conn) keepalivePause(now, last time.Duration) time.Duration {
	o, p := &c.srv.o, &c.pulse
	next := time.Hour
	switch {
	case c.stale.Load():
		if o.StaleClose > 0 {
			next = p.staleSince + o.StaleClose - now
		}
	case p.pinged != 0:
		next = min(p.pinged+o.PingTimeout-now, o.PingInterval) // to ping again soon where it was answered
	case o.PingInterval > 0:
		next = last + o.PingInterval - now
	}
	return max(next, time.Millisecond)
}

// ping asks for a sign of life. x/crypto waits for the answer without end, so it
// does in a goroutine of its own; while one waits there is no use in another, TCP
// repeats it. But that one may be answered and not know it yet, so another follows.
func (c *conn) ping() {
	if c.pings.Add(1) > 1 {
		return
	}
	c.spawn(func() {
		for {
			asked := c.pings.Load()
			if _, _, err := c.sc.SendRequest("keepalive@openssh.com", true, nil); err != nil || c.pings.CompareAndSwap(asked, 0) {
				return
			}
		}
	})
}

// goStale marks every tunnel of the connection as silent, unless a byte came
// after the one at lastHeard.
func (c *conn) goStale(lastHeard int64) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if c.sock.lastHeard() != lastHeard || c.stale.Swap(true) {
		return
	}
	c.log.Info("ssh peer is silent", "quiet", c.sock.silentFor())
	for _, f := range c.attached() {
		f.att.Stale()
		c.notify(shell.Notice{Kind: relay.NoticeStale, Alias: f.alias.Name})
	}
	c.srv.peers.endBridges((*bridge).lose, func(f *forward) bool { return f.c == c })
	if c.sock.heard.Load() != lastHeard {
		c.noteByte()
	}
	c.spawn(c.keepalive)
}

// goOnline takes staleness back.
func (c *conn) goOnline() {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if !c.stale.Swap(false) {
		return
	}
	c.log.Info("ssh peer is back")
	for _, f := range c.attached() {
		f.att.Online()
		c.notify(f.online())
	}
}
