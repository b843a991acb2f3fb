package sshgate

import (
	"bufio"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"relay"
	"relay/budget"
	"relay/cli"
	"relay/link"
	"relay/sshgate/login"
	"relay/sshgate/shell"
)

const (
	// maxSessions is how many sessions a connection may have, maxLingering how many
	// with those whose last words the peer does not take, or which it does not close.
	maxSessions, maxLingering = 4, 16
	// startTime is how long a session channel may stay without a command.
	startTime = 10 * time.Second
	// endTimeout is how long the end of a session waits for a peer that does not read.
	endTimeout = time.Second
)

// session is one session channel.
type session struct {
	c       *conn
	ch      *link.Channel
	ctx     context.Context // ends with the channel, or by Stop with an exitCode as its cause
	cancel  context.CancelCauseFunc
	screen  shell.Screen
	running atomic.Int64  // goroutines of the session beside its own
	over    chan struct{} // closed when the session has ended
	done    bool          // under conn.mu: only the end is left
	ended   bool          // under conn.mu: over is closed
	command bool          // under conn.mu: it runs a command or a subsystem, or a subsystem was refused to it

	starts   chan func() int          // runs what was asked for and gives the exit code
	consumer chan func(*bufio.Reader) // at most one, for readInput
	keys     chan string              // what input has read
	begun    bool                     // a shell, command or subsystem; of request alone
}

// exitCode is the cause of the end of a session's context where Stop has ended it.
type exitCode int

// Error implements error.
func (e exitCode) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// session runs one session channel to its end.
func (c *conn) session(open *link.Offer) {
	s := &session{
		c: c, over: make(chan struct{}), starts: make(chan func() int, 1), consumer: make(chan func(*bufio.Reader), 1),
		keys: make(chan string, shell.MaxKeys),
	}
	s.ctx, s.cancel = context.WithCancelCause(c.Context())
	defer s.cancel(nil)
	if !c.addSession(s) {
		_ = open.Reject(link.ResourceShortage, "too many sessions on this connection")
		return
	}
	defer c.removeSession(s)
	s.running.Add(1) // until the peer has closed the channel
	var err error
	if s.ch, err = open.Accept(link.ChannelOptions{Request: s.asked, Closed: s.closed, Guarded: true}); err != nil {
		s.running.Add(-1)
		return
	}
	c.sessionOpened()
	s.Go("session input", s.readInput)
	select {
	case start := <-s.starts:
		s.finish(start())
	case <-time.After(startTime):
		s.finish(cli.ExitUsage)
	case <-s.ctx.Done():
		s.finish(s.Exit(cli.ExitFailure))
	}
}

func (c *conn) addSession(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.draining || c.activeSessions() >= maxSessions || len(c.sessions) >= maxLingering {
		return false
	}
	c.sessions[s] = struct{}{}
	c.Sock.Linger()
	c.updateIdleTimer()
	return true
}

// activeSessions is how many sessions have not ended; mu is held.
func (c *conn) activeSessions() (n int) {
	for s := range c.sessions {
		if !s.done {
			n++
		}
	}
	return n
}

// removeSession forgets a session once nothing of it runs any more and the peer has closed it
// too.
func (c *conn) removeSession(s *session) {
	close(s.over)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.ended = true
	c.forgetSession(s)
}

// forgetSession forgets a session of which nothing runs any more; mu is held.
func (c *conn) forgetSession(s *session) {
	if s.ended && s.running.Load() == 0 {
		delete(c.sessions, s)
		c.notices.forget(s)
		c.updateIdleTimer()
	}
}

// asked answers what the client wants of the session.
func (s *session) asked(_ *link.Channel, req *link.Request) {
	start, ok := s.request(req)
	if !s.begun && (start != nil || req.Type == "subsystem") {
		s.begins(req.Type == "subsystem" || req.Type == "exec" && len(req.Payload) > len("\x00\x00\x00\x00"))
	}
	if start != nil {
		s.begun, ok = true, !s.begun
	}
	_ = req.Reply(ok, nil)
	if start != nil && ok { // not before the reply: a quick command would end the channel first
		s.starts <- start
	}
}

// closed is called when the peer has closed the channel.
func (s *session) closed() {
	s.cancel(nil)
	s.left()
}

// request tells whether a request is granted. start is what a shell, command or subsystem
// that is granted runs.
func (s *session) request(req *link.Request) (start func() int, ok bool) {
	var text struct{ Value string }
	hasText := link.Unmarshal(req.Payload, &text) == nil
	switch {
	case req.Type == "shell" && len(req.Payload) == 0:
		return func() int { return s.run("") }, true
	case req.Type == "exec" && hasText:
		return func() int { return s.run(text.Value) }, true
	case req.Type == "subsystem" && hasText && text.Value == apiSubsystem && s.c.enrolled == nil:
		return s.serveAPI, true
	case req.Type == "signal" && hasText && slices.Contains([]string{"INT", "TERM", "HUP", "QUIT"}, text.Value):
		s.Stop(cli.ExitInterrupted) // those that end a program end the session (RFC 4254, section 6.9)
		return nil, true
	}
	return nil, s.screen.Request(req.Type, req.Payload) // false for x11-req, auth-agent-req@openssh.com, break, …
}

// inputWait is how long the first bytes of the peer wait for a shell, command or subsystem.
// Clients ask for it before they send anything, but another goroutine reads what they ask.
const inputWait = 250 * time.Millisecond

// readInput waits for the first byte of the peer and has the consumer that the start of the
// session names read all. Input of a peer that asks for nothing is read too, because x/crypto
// would keep 2 MiB of it; what is asked for later gets no input then.
func (s *session) readInput() {
	in := bufio.NewReader(s.ch)
	_, _ = in.Peek(1)
	consume := s.input
	select {
	case consume = <-s.consumer:
	case <-time.After(inputWait):
	case <-s.ctx.Done():
	}
	consume(in)
}

// Stop asks the session to end with an exit code. The first call counts.
func (s *session) Stop(code int) { s.cancel(exitCode(code)) }

// Exit is the code that the session was asked to end with, or otherwise.
func (s *session) Exit(otherwise int) int {
	if code, ok := context.Cause(s.ctx).(exitCode); ok {
		return int(code)
	}
	return otherwise
}

// finish says the exit code and closes the channel, without waiting for a peer
// that does not read.
func (s *session) finish(code int) {
	s.c.mu.Lock()
	s.done = true // a client that learns of the end may ask for the next session
	s.c.updateIdleTimer()
	s.c.mu.Unlock()
	done := make(chan struct{})
	s.Go("finish", func() {
		defer close(done)
		// One of before may have passed, and would let Close overtake what is said here.
		_ = s.ch.SetWriteDeadline(time.Now().Add(endTimeout))
		if !s.ch.Writing() { // what the peer does not take is left alone
			_ = s.ch.CloseWrite()
		}
		_, _ = s.ch.SendRequest("exit-status", false, link.Marshal(struct{ Status uint32 }{uint32(code)}))
		_ = s.ch.Close()
	})
	select {
	case <-done:
	case <-time.After(endTimeout):
	}
}

// run runs a command, or what a session without one is for.
func (s *session) run(command string) int {
	s.consumer <- s.input
	if s.c.enrolled != nil {
		return s.sayEnrolled(command)
	}
	s.ordered()
	held := &budget.Hold{Budget: s.c.srv.o.Budget, Account: s.c.who.Account}
	defer held.Release()
	sh := &shell.Shell{
		Config: &s.c.srv.shell, Session: s, Ctx: s.ctx, Who: s.c.who, Log: s.c.Log(),
		Stdout: s.ch, Stderr: s.ch.Stderr(), Screen: &s.screen, Keys: s.keys, Hold: held.Set,
	}
	if strings.TrimSpace(command) == "" {
		return sh.Run(command)
	}
	defer context.AfterFunc(s.ctx, s.limitOutput)()
	sh.Stdout, sh.Stderr = commandOutput{s, sh.Stdout}, commandOutput{s, sh.Stderr}
	return sh.Run(command)
}

// SubscribeNotices implements shell.Session.
func (s *session) SubscribeNotices() (online, refused []shell.Notice, further *shell.Queue[shell.Notice]) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, f := range s.c.forwards {
		if f.att != nil { // the others are told when they are
			online = append(online, f.online())
		}
	}
	refused, further = s.c.notices.subscribe(s)
	return online, refused, further
}

// RequestsPending implements shell.Session.
func (s *session) RequestsPending() bool { return s.c.requests.waiting.Load() > 0 }

// Holds implements shell.Session.
func (s *session) Holds(alias int64) bool {
	return s.c.holds(func(a *relay.Alias) bool { return a.ID == alias })
}

// Attached implements shell.Session.
func (s *session) Attached() (names []string) {
	for _, f := range s.c.attached() {
		names = append(names, f.alias.Name)
	}
	return names
}

// ordered waits until the requests that came before the session are done.
func (s *session) ordered() {
	turn := make(chan struct{})
	s.c.post(func() { close(turn) })
	select {
	case <-turn:
	case <-s.ctx.Done():
	}
}

// input passes what the peer sends to the shell.
func (s *session) input(in *bufio.Reader) { s.screen.ReadKeys(in, s.keys) }

// Go implements shell.Session: the connection remembers the goroutines of the session until
// all of them have ended, however long the peer leaves a write hanging.
func (s *session) Go(where string, f func()) {
	s.running.Add(1)
	run := func() {
		defer s.left()
		defer s.c.Recovered(where)
		f()
	}
	if !s.c.Go(where, run) {
		go run() // the connection has ended, and with it reads and writes
	}
}

// left notes that a goroutine of the session, or its channel, has ended.
func (s *session) left() {
	s.running.Add(-1)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.forgetSession(s)
}

// sayEnrolled runs a session of such a connection. A shell ends well, a command is refused.
func (s *session) sayEnrolled(command string) int {
	to, lines, exit := s.screen.Writer(s.ch), s.c.enrolled, cli.ExitOK
	if command != "" {
		to, exit = s.screen.Writer(s.ch.Stderr()), cli.ExitUsage
		lines = append(slices.Clone(lines), "no command was run: a connection of "+login.EnrolUser+"@ only registers a key; type it again without "+login.EnrolUser+"@")
	}
	_, _ = io.WriteString(to, strings.Join(lines, "\n")+"\n")
	return exit
}
