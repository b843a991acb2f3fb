package sshgate

import (
	"context"
	"time"

	"relay"
)

// A connection that is there to run a command serves no forward: a RemoteForward of
// ~/.ssh/config comes with every ssh to the relay, and must not take an alias from the tunnel
// that serves it. Clients ask for their forwards first, then open a session, and name the
// command only when that is open. So the first forwards of a connection wait for their answer
// until it is known what the connection is for.

// Times of the wait for what a connection is for.
const (
	// purposeWait is for a client that answers nothing: it counts as a tunnel then.
	purposeWait = 2 * time.Second
	// purposeSettle is for a library whose caller has the command ready but has not sent it
	// yet, and for the goroutines that read here what came before an answer.
	purposeSettle = 50 * time.Millisecond
)

// purpose is what a connection is for, as far as its sessions tell. conn.mu protects it.
type purpose struct {
	opened  int           // sessions that were opened
	began   int           // sessions that have begun something
	first   chan struct{} // closed when the first session begins something
	command bool          // that is a command or a subsystem
	tunnel  bool          // it serves the forwards that were asked for before any session began
}

// sessionOpened notes that the client knows of a session and can begin something in it.
func (c *conn) sessionOpened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.purpose.opened++
}

// begins notes what was asked for in the session.
func (s *session) begins(command bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.command = command
	p := &s.c.purpose
	if p.began++; p.began == 1 {
		p.command = command
		close(p.first)
	}
}

// runsCommand reports whether a session runs a command or a subsystem. mu is held.
func (c *conn) runsCommand() bool {
	for s := range c.sessions {
		if s.command && !s.done {
			return true
		}
	}
	return false
}

var errCommand = relay.Errorf(relay.CodeConflict,
	"a connection that runs a command serves no forward; leave the command away, or use another ssh with -N for the tunnel")

// allowForward says why a connection does not serve a forward, whatever its alias is. A
// forward with a name that comes after the command, such as one of ssh -O forward, was asked
// for by somebody who knows of both.
func (c *conn) allowForward(ctx context.Context, f *forward) *relay.Error {
	if f.begun == 0 && !c.isTunnel(ctx) {
		return errCommand
	}
	if f.named {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runsCommand() {
		return errCommand
	}
	if c.namedWaiting > 0 {
		return relay.Errorf(relay.CodeConflict, "a forward without a name serves nothing beside one with a name")
	}
	for _, other := range c.forwards {
		if other.named {
			return relay.Errorf(relay.CodeConflict, "a forward without a name serves nothing beside the one of %s", other.alias.Name)
		}
	}
	return nil
}

// isTunnel reports whether the connection serves the forwards that were asked for before any
// session began. It asks the client for an answer: what the client sent before that answer has
// come then, and a client that opens a session, or names a command in an open one, does it
// before it reads what we ask.
func (c *conn) isTunnel(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, purposeWait)
	defer cancel()
	for {
		c.mu.Lock()
		p := &c.purpose
		if c.notices.toClient() != nil { // the bundled client forwards nothing beside a command
			p.tunnel = true
		}
		tunnel, began, command, opened := p.tunnel, p.began > 0, p.command, p.opened
		c.mu.Unlock()
		if tunnel || began {
			return tunnel || !command
		}
		c.roundTrip(ctx)
		c.mu.Lock()
		if p.began == 0 && (p.opened == opened || ctx.Err() != nil) {
			p.tunnel = true
		}
		c.mu.Unlock()
	}
}

// roundTrip returns when the client has answered, has had a moment and has answered again, or
// when a session has begun something.
func (c *conn) roundTrip(ctx context.Context) {
	answered := make(chan struct{})
	c.Go("round trip", func() {
		defer close(answered)
		_ = c.RoundTrip(ctx)
		select {
		case <-time.After(purposeSettle):
		case <-ctx.Done():
			return
		}
		_ = c.RoundTrip(ctx)
	})
	select {
	case <-answered:
	case <-c.purpose.first:
	case <-ctx.Done():
	}
}
