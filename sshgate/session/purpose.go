package session

import (
	"context"
	"strings"
	"time"

	"relay/waits"
)

// A connection that runs a command serves no forward: the RemoteForward of ~/.ssh/config comes with every ssh
// to the relay, and must not take an alias from the tunnel that serves it. Clients request their forwards
// first, then open a session, and name the command only in the open session. So the replies to the first
// forwards of a connection wait until the purpose of the connection is known.

// Times of the wait for the purpose of a connection.
const (
	// purposeWait is the time after which the connection of a client that does not answer pings counts as one for a
	// tunnel.
	purposeWait = 2 * time.Second
	// knownClientWait replaces purposeWait for knownClients, because they always answer.
	knownClientWait = startTime
	// purposeSettle is the time for an SSH library to send a command that its program has already requested, and
	// for relayd to read the requests of an open session.
	purposeSettle = 50 * time.Millisecond
)

// knownClients are clients, by the prefix of their name, whose source code shows that they send all their
// forwards and the open of their session without reading in between. When such a client answers a ping that
// was sent after its first forward, all of these requests have arrived. An early client sends them before it
// reads any message after its login, so it is pinged directly after the login, and its answer arrives with
// the forwards.
var knownClients = []struct {
	prefix string
	early  bool
}{{"OpenSSH_", true}, {"dropbear_", true}, {"PuTTY_", false}}

// purpose distinguishes connections for tunnels from connections for commands, by their sessions. Sessions.mu
// guards it.
type purpose struct {
	opened   int           // number of sessions that were opened
	began    int           // number of sessions that have begun a shell, a command or a subsystem
	first    chan struct{} // closed when the first session has begun a shell, a command or a subsystem
	command  bool          // whether the first session runs a command or a subsystem
	tunnel   bool          // whether forwards from before the first session are served
	known    bool          // whether the client is one of knownClients
	pinged   bool          // whether a ping was sent; the channel answered is closed later
	answered chan struct{} // closed when the client has answered the ping, or the connection has ended
}

// LoggedIn is called after the login with the name of the client, such as OpenSSH_9.2p1. It notes whether the
// client is one of knownClients, and pings an early one.
func (l *Sessions) LoggedIn(client string) {
	for _, k := range knownClients {
		if strings.HasPrefix(client, k.prefix) {
			l.mu.Lock()
			l.purpose.known = true
			l.mu.Unlock()
			if k.early {
				l.ping()
			}
		}
	}
}

// ping sends a ping, and closes the channel answered when the client has answered it. Only the first call has an
// effect.
func (l *Sessions) ping() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.purpose.pinged {
		return
	}
	l.purpose.pinged = true
	l.Conn.Go("round trip", func() {
		defer close(l.purpose.answered)
		_ = l.Conn.RoundTrip(l.Conn.Context())
	})
}

// begins notes that session s has begun, and whether s runs a command.
func (l *Sessions) begins(s *session, command bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.command = command
	l.OnBegin(s.who, command)
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

// RunCommand reports whether any session of the connection is running a command or a subsystem.
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

// IsTunnel reports whether the connection serves the forwards that were requested before any session began. bundled
// means that the client is known to be relay up, which requests no forwards beside a command.
func (l *Sessions) IsTunnel(ctx context.Context, bundled bool) bool {
	l.mu.Lock()
	p := &l.purpose
	p.tunnel = p.tunnel || bundled
	decided, known := p.tunnel || p.began > 0, p.known
	l.mu.Unlock()
	switch {
	case decided:
	case known:
		l.awaitKnown(ctx)
	default:
		l.awaitOther(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.began == 0 {
		p.tunnel = true
	}
	return p.tunnel || !p.command
}

// awaitKnown is called if the client is one of knownClients, which start a shell or a command in each session
// that they open. It waits until a session has begun a shell, a command or a subsystem, or until the client has
// answered the ping and has no session open.
func (l *Sessions) awaitKnown(ctx context.Context) {
	ctx, cancel := waits.WithTimeout(ctx, knownClientWait)
	defer cancel()
	l.ping()
	for next := l.purpose.answered; next != nil; next = l.unfinished() {
		select {
		case <-next:
		case <-l.purpose.first:
			return
		case <-ctx.Done():
			return
		}
	}
}

// unfinished returns a channel that is closed at the end of a session that is still running; nil = none.
func (l *Sessions) unfinished() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.all {
		if !s.ended {
			return s.over
		}
	}
	return nil
}

// awaitOther is called for any other client. It waits until a session has begun a shell, a command or a
// subsystem, or until the client has opened no session during a call of roundTrips. Most of these clients open a
// session, or start a command in an open session, before they read the ping.
func (l *Sessions) awaitOther(ctx context.Context) {
	ctx, cancel := waits.WithTimeout(ctx, purposeWait)
	defer cancel()
	for before := -1; ctx.Err() == nil; {
		l.mu.Lock()
		opened, began := l.purpose.opened, l.purpose.began
		l.mu.Unlock()
		if began > 0 || opened == before {
			return
		}
		before = opened
		l.roundTrips(ctx)
	}
}

// roundTrips returns when a session has begun, or when the client has answered a ping, and another ping after
// purposeSettle.
func (l *Sessions) roundTrips(ctx context.Context) {
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
