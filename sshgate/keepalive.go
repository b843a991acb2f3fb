package sshgate

import (
	"time"

	"relay"
)

// noteByte is called for every read of the socket.
func (c *conn) noteByte() {
	if !c.stale.Load() {
		return
	}
	select {
	case c.byteWhileStale <- struct{}{}:
	default:
	}
}

// keepalive follows the peer's pulse: a byte, any byte, is a sign of life. A quiet
// peer is pinged; one that stays quiet makes its tunnels stale, and they are
// online again with its next byte. A connection that is stale for long is closed.
func (c *conn) keepalive() {
	o := &c.srv.o
	var pinged, staleSince time.Duration // since the start of the socket; 0 = no
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now, last := time.Duration(c.sock.now()), time.Duration(c.sock.lastHeard())
		c.sock.checkWrite()
		if pinged != 0 && last > pinged {
			pinged = 0
		}
		switch {
		case c.stale.Load():
			if staleSince == 0 {
				staleSince = now
				c.ping()
			}
			if o.StaleClose > 0 && now-staleSince >= o.StaleClose {
				c.log.Info("silent ssh connection closed", "quiet", now-last)
				_ = c.sock.Close()
				return
			}
		case o.PingInterval > 0 && pinged == 0 && now-last >= o.PingInterval:
			pinged = now
			c.ping()
		case pinged != 0 && now-pinged >= o.PingTimeout:
			if c.goStale(int64(last)); c.stale.Load() {
				staleSince = now
			}
		}
		timer.Reset(c.keepalivePause(now, last, pinged, staleSince))
		select {
		case <-c.ctx.Done():
			return
		case <-c.byteWhileStale:
			c.goOnline()
			pinged, staleSince = 0, 0
		case <-c.stateChanged:
		case <-timer.C:
		}
	}
}

// keepalivePause is how long watch has nothing to do.
func (c *conn) keepalivePause(now, last, pinged, staleSince time.Duration) time.Duration {
	o := &c.srv.o
	next := time.Hour
	switch {
	case c.stale.Load():
		if o.StaleClose > 0 {
			next = staleSince + o.StaleClose - now
		}
	case pinged != 0:
		next = pinged + o.PingTimeout - now
	case o.PingInterval > 0:
		next = last + o.PingInterval - now
	}
	if o.PingInterval > 0 {
		next = min(next, o.PingInterval) // for checkWrite
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
		c.notify(notice{kind: relay.NoticeStale, alias: f.alias.Name})
	}
	c.srv.peers.lost(c)
	if c.sock.heard.Load() != lastHeard {
		c.noteByte()
	}
	c.wakeKeepalive()
}

// wakeKeepalive makes watch look at the state again.
func (c *conn) wakeKeepalive() {
	select {
	case c.stateChanged <- struct{}{}:
	default:
	}
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
