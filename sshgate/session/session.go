package session

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
	// startTime is how long a session channel may stay open before the client requests a shell, a command or a
	// subsystem.
	startTime = 10 * time.Second
	// endTimeout is how long a session waits, at its end, until the peer has read the last output.
	endTimeout = time.Second
)

// session is one session channel.
type session struct {
	of       *Sessions
	who      relay.Actor
	enrolled []string // if not nil, the session only prints these lines
	ch       *link.Channel
	ctx      context.Context // ends with the channel, or at Stop with an exitCode as its cause
	cancel   context.CancelCauseFunc
	screen   shell.Screen
	running  atomic.Int64  // number of goroutines beside the one that runs the session; the channel counts as one until the peer has closed it
	over     chan struct{} // closed when the session has ended
	done     bool          // guarded by Sessions.mu: the session has finished its work and is closing
	ended    bool          // guarded by Sessions.mu: over is closed
	command  bool          // guarded by Sessions.mu: a command or subsystem runs, or a subsystem was refused

	starts   chan func() int          // gets the function that runs the requested shell, command or subsystem and returns its exit code
	consumer chan func(*bufio.Reader) // gets the function that reads the input, at most one
	keys     chan string              // keys that the method input has read
	begun    bool                     // a shell, command or subsystem has begun; used only by asked
}

// exitCode is the cause of the end of a session's context after Stop.
type exitCode int

// Error implements error.
func (e exitCode) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// serve runs the session from its start to its end.
func (s *session) serve() {
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

// asked answers a request of the client on the session's channel.
func (s *session) asked(_ *link.Channel, req *link.Request) {
	start, ok := s.request(req)
	if !s.begun && (start != nil || req.Type == "subsystem") {
		s.of.begins(s, req.Type == "subsystem" || req.Type == "exec" && len(req.Payload) > len("\x00\x00\x00\x00"))
	}
	if start != nil {
		s.begun, ok = true, !s.begun
	}
	_ = req.Reply(ok, nil)
	// The session starts after the reply, because a quick command could otherwise end the channel first.
	if start != nil && ok {
		s.starts <- start
	}
}

// closed is called when the peer has closed the channel.
func (s *session) closed() {
	s.cancel(nil)
	s.left()
}

// request grants or refuses a request of the client. The result start runs the granted shell, command or subsystem; it
// is nil for all other requests.
func (s *session) request(req *link.Request) (start func() int, ok bool) {
	var text struct{ Value string }
	hasText := link.Unmarshal(req.Payload, &text) == nil
	switch {
	case req.Type == "shell" && len(req.Payload) == 0:
		return func() int { return s.run("") }, true
	case req.Type == "exec" && hasText:
		return func() int { return s.run(text.Value) }, true
	case req.Type == "subsystem" && hasText && text.Value == apiSubsystem && s.enrolled == nil:
		return s.serveAPI, true
	case req.Type == "signal" && hasText && slices.Contains([]string{"INT", "TERM", "HUP", "QUIT"}, text.Value):
		s.Stop(cli.ExitInterrupted) // a signal that ends programs ends the session (RFC 4254, section 6.9)
		return nil, true
	}
	return nil, s.screen.Request(req.Type, req.Payload) // Request returns false for all other requests
}

// inputWait is how long the first input of the peer waits for the request of a shell, command or subsystem.
// Clients send that request before any input, but another goroutine reads it.
const inputWait = 250 * time.Millisecond

// readInput waits for the first byte of the peer, and passes all input to the function that the start of a shell,
// command or subsystem has sent to consumer. If nothing was started within inputWait, the method input gets all
// input instead, because x/crypto would otherwise hold 2 MiB of it.
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

// Stop asks the session to end with an exit code. Only the first call has an effect.
func (s *session) Stop(code int) { s.cancel(exitCode(code)) }

// Exit returns the exit code of Stop, or the value of otherwise if Stop was not called.
func (s *session) Exit(otherwise int) int {
	if code, ok := context.Cause(s.ctx).(exitCode); ok {
		return int(code)
	}
	return otherwise
}

// finish sends the exit code and closes the channel, without waiting for a peer that does not read.
func (s *session) finish(code int) {
	// The session counts as finished before the client sees its end, because the client may then open the next
	// session.
	s.of.finished(s)
	done := make(chan struct{})
	s.Go("finish", func() {
		defer close(done)
		// An earlier deadline that has passed would make the writes fail, and the client would see CLOSE
		// without an exit code.
		_ = s.ch.SetWriteDeadline(time.Now().Add(endTimeout))
		if !s.ch.Writing() { // CloseWrite would wait for the end of a running write
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

// run runs a command, or the live view if command is "", and returns its exit code.
func (s *session) run(command string) int {
	var stdin io.Reader
	if s.enrolled == nil && shell.ReadsInput(command) && !s.screen.HasPTY() {
		from, to := io.Pipe()
		stdin = from
		defer func() { _ = from.Close() }()
		defer context.AfterFunc(s.ctx, func() { _ = to.CloseWithError(context.Cause(s.ctx)) })()
		s.consumer <- func(in *bufio.Reader) { pass(to, in) }
	} else {
		s.consumer <- s.input
	}
	if s.enrolled != nil {
		return s.sayEnrolled(command)
	}
	s.ordered()
	held := &budget.Hold{Budget: s.of.Budget, Account: s.who.Account}
	defer held.Release()
	sh := &shell.Shell{
		Config: &s.of.Shell, Session: s, Conn: s.of.Gate, Ctx: s.ctx, Who: s.who, Log: s.of.Conn.Log(),
		Stdout: s.ch, Stderr: s.ch.Stderr(), Screen: &s.screen, Keys: s.keys, Hold: held.Set,
		Stdin: stdin,
	}
	if strings.TrimSpace(command) == "" {
		return sh.Run(command)
	}
	defer context.AfterFunc(s.ctx, s.limitOutput)()
	sh.Stdout, sh.Stderr = commandOutput{s, sh.Stdout}, commandOutput{s, sh.Stderr}
	return sh.Run(command)
}

// pass copies the input of the peer to a command. When the command accepts no more, pass reads and drops the
// rest.
func pass(to *io.PipeWriter, in *bufio.Reader) {
	_, err := io.Copy(to, in)
	_ = to.CloseWithError(err) // if err is nil, the reader gets io.EOF
	_, _ = io.Copy(io.Discard, in)
}

// ordered waits until the requests that arrived before the start of the session have been handled.
func (s *session) ordered() {
	turn := make(chan struct{})
	s.of.Post(func() { close(turn) })
	select {
	case <-turn:
	case <-s.ctx.Done():
	}
}

// input passes typed keys of the peer to the shell.
func (s *session) input(in *bufio.Reader) { s.screen.ReadKeys(in, s.keys) }

// Go implements shell.Session. It counts the goroutines of the session until they have ended, even if the
// peer blocks a write for long.
func (s *session) Go(where string, f func()) {
	s.running.Add(1)
	run := func() {
		defer s.left()
		defer s.of.Conn.Recovered(where)
		f()
	}
	if !s.of.Conn.Go(where, run) {
		go run() // the connection has ended, so its reads and writes fail
	}
}

// left notes that a goroutine of the session, or its channel, has ended.
func (s *session) left() {
	s.running.Add(-1)
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.forget(s)
}

// sayEnrolled runs a session of a connection that only registers a key: it prints the messages about the key.
// A shell ends with success, and a command is refused.
func (s *session) sayEnrolled(command string) int {
	to, lines, exit := s.screen.Writer(s.ch), s.enrolled, cli.ExitOK
	if command != "" {
		to, exit = s.screen.Writer(s.ch.Stderr()), cli.ExitUsage
		lines = append(slices.Clone(lines), "no command was run: a connection of "+login.EnrolUser+"@ only registers a key; type it again without "+login.EnrolUser+"@")
	}
	_, _ = io.WriteString(to, strings.Join(lines, "\n")+"\n")
	return exit
}
