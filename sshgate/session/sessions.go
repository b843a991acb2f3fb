// Package session runs the sessions of an SSH connection: the shell of package shell, and the subsystem that
// carries the API. The sessions of a connection also show whether the connection is for a tunnel or a command.
package session

import (
	"bufio"
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"relay"
	"relay/budget"
	"relay/link"
	"relay/sshgate/shell"
)

// maxSessions is the largest number of running sessions of a connection. maxLingering also counts ended
// sessions whose last output the peer has not read, or whose channel it has not closed.
const maxSessions, maxLingering = 4, 16

// Config is shared by the sessions of a server.
type Config struct {
	Shell shell.Config
	// API returns the HTTP server for one channel or command. Its handler acts for the given account.
	API          func(who relay.Actor) *http.Server
	Budget       *budget.Budget
	StallTimeout time.Duration
}

// Options configure the sessions of one connection.
type Options struct {
	*Config
	Conn   *link.Conn
	Remote netip.AddrPort
	Gate   shell.Conn       // the connection, for the shell
	Post   func(job func()) // runs a job after the earlier global requests of the connection
	Used   func(n int)      // adds n to the number of forwards and sessions in use
	// OnBegin is called when a session begins; command tells whether it runs a command. It must not block.
	OnBegin func(who relay.Actor, command bool)
}

// Sessions are the sessions of one connection.
type Sessions struct {
	Options

	mu       sync.Mutex
	refusing bool
	all      map[*session]struct{}
	purpose  purpose
}

// New returns the sessions of a connection, with none open.
func New(o Options) *Sessions {
	return &Sessions{Options: o, all: map[*session]struct{}{}, purpose: purpose{first: make(chan struct{}), answered: make(chan struct{})}}
}

// Offered notes that the client opens a session, and does not block. It returns a function that runs the
// session for the logged-in actor until its end. enrolled is nil, or the text of a session on a connection
// that only registers a key.
func (l *Sessions) Offered(open *link.Offer, who relay.Actor, enrolled []string) (run func()) {
	s := &session{
		of: l, who: who, enrolled: enrolled,
		over: make(chan struct{}), starts: make(chan func() int, 1), consumer: make(chan func(*bufio.Reader), 1),
		keys: make(chan string, shell.MaxKeys),
	}
	s.ctx, s.cancel = context.WithCancelCause(l.Conn.Context())
	if !l.add(s) {
		return func() {
			s.cancel(nil)
			_ = open.Reject(link.ResourceShortage, "too many sessions on this connection")
		}
	}
	return func() { l.run(s, open) }
}

// run runs one session channel to its end.
func (l *Sessions) run(s *session, open *link.Offer) {
	defer s.cancel(nil)
	defer l.remove(s)
	s.running.Add(1) // counts the channel until the peer has closed it
	var err error
	if s.ch, err = open.Accept(link.ChannelOptions{Request: s.asked, Closed: s.closed, Guarded: true}); err != nil {
		s.running.Add(-1)
		return
	}
	l.mu.Lock()
	l.purpose.opened++ // from now on the client can begin a shell or a command in the session
	l.mu.Unlock()
	s.serve()
}

// Refuse refuses all further sessions.
func (l *Sessions) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = true
}

// Stop asks all sessions to end with an exit code. Each channel in ended is closed at the end of one session.
func (l *Sessions) Stop(exit int) (ended []<-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.all {
		s.Stop(exit)
		ended = append(ended, s.over)
	}
	return ended
}

func (l *Sessions) add(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	active := 0
	for other := range l.all {
		if !other.done {
			active++
		}
	}
	if l.refusing || l.Conn.Context().Err() != nil || active >= maxSessions || len(l.all) >= maxLingering {
		return false
	}
	l.all[s] = struct{}{}
	l.Conn.Sock.Linger()
	l.Used(1)
	return true
}

// finished notes that a session has finished its work and is only closing.
func (l *Sessions) finished(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(s)
}

// leave is like finished, for callers that hold mu.
func (l *Sessions) leave(s *session) {
	if !s.done {
		s.done = true
		l.Used(-1)
	}
}

// remove notes that a session has ended, and forgets it unless goroutines still run or the peer has not closed the
// channel. In these two cases, session.left forgets it later.
func (l *Sessions) remove(s *session) {
	close(s.over)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(s)
	s.ended = true
	l.forget(s)
}

// forget removes a session from the list if it has ended and none of its goroutines runs. The caller holds mu.
func (l *Sessions) forget(s *session) {
	if s.ended && s.running.Load() == 0 {
		delete(l.all, s)
	}
}
