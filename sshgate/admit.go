package sshgate

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	gliderlabs "github.com/gliderlabs/ssh"
)

// admit is where a new TCP connection comes in, before the first byte is
// exchanged. Giving nil closes it.
func (g *Gate) admit(ctx gliderlabs.Context, tcp net.Conn) net.Conn {
	c := newConn(g, tcp)
	g.metrics.accept()
	if left := g.kept(c); left > 0 {
		g.turnAway(tcp, dropPenalty, fmt.Sprintf("too many failed logins from your address; try again in %d s", int(left.Seconds())+1))
		return nil
	}
	g.mu.Lock()
	if g.stopping {
		g.mu.Unlock()
		return nil
	}
	reason, victim := g.crowd.arrive(&c.place)
	if reason != "" && victim == nil {
		g.mu.Unlock()
		g.turnAway(tcp, reason, "too many connections; try again in a moment")
		return nil
	}
	g.conns[c] = struct{}{}
	ctx.SetValue(connKey{}, c)
	c.patience = time.Now().Add(g.o.HandshakeTimeout)
	c.handshake = time.AfterFunc(g.o.HandshakeTimeout, c.tooSlow)
	g.mu.Unlock()
	g.shed(victim, reason)
	// Here and not in config: gliderlabs holds a lock there that every login needs.
	c.version = c.sock.exchange("SSH-2.0-" + serverName)
	if c.version != "" {
		c.blame(faultNothing)
		g.shed(g.crowd.speak(&c.place), dropHandshakes)
	}
	return c.sock
}

// kept is how long the source of a connection is kept out for what it did before.
func (g *Gate) kept(c *conn) time.Duration {
	if c.place.local {
		return 0
	}
	return g.penalties.left(c.place.from)
}

// turnAway says a line to a connection that is closed at once. SSH allows lines
// before the version (RFC 4253, section 4.2); ssh -v shows them.
func (g *Gate) turnAway(tcp net.Conn, reason, words string) {
	g.metrics.drop(reason)
	g.o.Log.Debug("ssh connection turned away", "remote", tcp.RemoteAddr().String(), "reason", reason)
	_ = tcp.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = tcp.Write([]byte("relay: " + words + "\r\n"))
}

// shed closes the connection of a place that was given to another one.
func (g *Gate) shed(victim *place, reason string) {
	if victim == nil {
		return
	}
	g.metrics.drop(reason)
	g.o.Log.Debug("ssh connection closed for another one", "remote", victim.c.remote.String(), "reason", reason)
	victim.c.blame(faultOurs)
	_ = victim.c.sock.Close()
}

// local tells whether an address stands for many people, or for the machine itself.
func (g *Gate) local(a netip.Addr) bool {
	if !a.IsValid() || a.IsLoopback() {
		return true
	}
	for _, p := range g.o.Trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// forget takes a connection that has ended out, and has its source pay when it led
// to no login.
func (g *Gate) forget(c *conn) {
	g.mu.Lock()
	delete(g.conns, c)
	stopping := g.stopping
	g.mu.Unlock()
	defer g.crowd.leave(&c.place) // last: who sees that it has gone sees what it has cost
	c.mu.Lock()
	in, fault, key := c.loggedIn, c.fault, c.refusedKey
	c.mu.Unlock()
	if in {
		return
	}
	if key != "" && fault == faultRefused {
		g.unheard.note(c.place.from, key)
	}
	g.metrics.noLogin(fault)
	if cost := fault.cost(); cost > 0 && !stopping && !c.place.local {
		g.penalties.add(c.place.from, cost)
	}
}
