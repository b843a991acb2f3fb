package session

import (
	"context"
	"strings"
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
	// knownClientWait is purposeWait for knownClients, which always answer.
	knownClientWait = startTime
	// purposeSettle is the time for a library to send a command that its caller has ready, and for our
	// goroutines to read the requests of an open session.
	purposeSettle = 50 * time.Millisecond
)

// knownClients are clients, by the prefix of their name, whose sources were read: they send all their forwards
// and the open of their session without reading in between. So all of these have arrived when such a client
// answers a ping that was sent after its first forward. An early client sends them before it reads anything
// behind the success of its login, so it can be pinged right then, and its answer arrives with the forwards.
var knownClients = []struct {
	prefix string
	early  bool
}{{"OpenSSH_", true}, {"dropbear_", true}, {"PuTTY_", false}}

// purpose tells connections for tunnels from those for commands, as far as their sessions show. Sessions.mu
// guards it.
type purpose struct {
	opened   int           // sessions that were opened
	began    int           // sessions that have begun something
	first    chan struct{} // closed when the first session begins something
	command  bool          // that is a command or a subsystem
	tunnel   bool          // it serves the forwards that were asked for before any session began
	known    bool          // the client is one of knownClients
	pinged   bool          // answered will be closed
	answered chan struct{} // closed when such a client has answered, or the connection has ended
}

// LoggedIn notes which client has logged in, such as OpenSSH_9.2p1.
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

// ping closes answered when the client has answered. Only the first call has an effect.
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

// begins notes that a session has begun, and whether it runs a command.
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

// IsTunnel reports whether the connection serves the forwards that were requested before any
// session began. bundled reports whether the client is known to be relay up, which requests no forwards
// beside a command.
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

// awaitKnown waits for one of knownClients: until a session has begun something, or the client has answered
// and has no session open. Such a client starts a shell or a command in each session that it opens.
func (l *Sessions) awaitKnown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, knownClientWait)
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

// unfinished returns a channel that is closed at the end of a session that still runs; nil = there is none.
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

// awaitOther waits for any other client: until a session has begun something, or the client has answered a ping,
// has had a moment and has answered again, and opened no session meanwhile. A client that opens a session, or
// starts a command in an open one, mostly does so before it reads the ping.
func (l *Sessions) awaitOther(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, purposeWait)
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

// roundTrips returns when the client has answered a ping, has had a moment and has answered again, or
// when a session has begun.
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
