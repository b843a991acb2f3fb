package session

import (
	"context"
	"time"
)

// A connection that is there to run a command serves no forward: a RemoteForward of
// ~/.ssh/config comes with every ssh to the relay, and must not take an alias from the tunnel
// that serves it. Clients ask for their forwards first, then open a session, and name the
// command only when that is open. So the first forwards of a connection wait for their answer
// until it is known what the connection is for.

// Times of the wait for the purpose of a connection.
const (
	// purposeWait is the time after which a client that does not answer counts as a tunnel.
	purposeWait = 2 * time.Second
	// purposeSettle is the time for a library to send a command that its caller has ready, and for our
	// goroutines to read the messages before an answer.
	purposeSettle = 50 * time.Millisecond
)

// purpose tells connections for tunnels from those for commands, as far as their sessions show. Sessions.mu
// guards it.
type purpose struct {
	opened  int           // sessions that were opened
	began   int           // sessions that have begun something
	first   chan struct{} // closed when the first session begins something
	command bool          // that is a command or a subsystem
	tunnel  bool          // it serves the forwards that were asked for before any session began
}

// begins notes that a session has begun, and whether it runs a command.
func (l *Sessions) begins(s *session, command bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.command = command
	if l.purpose.began++; l.purpose.began == 1 {
		l.purpose.command = command
		close(l.purpose.first)
	}
}

// Began returns the number of sessions that have begun a shell, a command or a subsystem.
func (l *Sessions) Began() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.purpose.began
}

// RunCommand reports whether a session runs a command or a subsystem.
func (l *Sessions) RunCommand() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.all {
		if s.command && !s.done {
			return true
		}
	}
	return false
}

// IsTunnel reports whether the connection serves the forwards that were requested before any session
// began. It sends a ping and waits for the answer: by then, everything that the client sent before has
// arrived, and a client that opens a session, or starts a command in an open one, does so before it
// reads the ping. bundled reports whether the client is known to be relay up, which requests no
// forwards beside a command.
func (l *Sessions) IsTunnel(ctx context.Context, bundled func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, purposeWait)
	defer cancel()
	for {
		l.mu.Lock()
		p := &l.purpose
		if bundled() {
			p.tunnel = true
		}
		tunnel, began, command, opened := p.tunnel, p.began > 0, p.command, p.opened
		l.mu.Unlock()
		if tunnel || began {
			return tunnel || !command
		}
		l.roundTrip(ctx)
		l.mu.Lock()
		if p.began == 0 && (p.opened == opened || ctx.Err() != nil) {
			p.tunnel = true
		}
		l.mu.Unlock()
	}
}

// roundTrip returns when the client has answered a ping, has had a moment and has answered again, or
// when a session has begun.
func (l *Sessions) roundTrip(ctx context.Context) {
	answered := make(chan struct{})
	l.Conn.Go("round trip", func() {
		defer close(answered)
		_ = l.Conn.RoundTrip(ctx)
		select {
		case <-time.After(purposeSettle):
		case <-ctx.Done():
			return
		}
		_ = l.Conn.RoundTrip(ctx)
	})
	select {
	case <-answered:
	case <-l.purpose.first:
	case <-ctx.Done():
	}
}
