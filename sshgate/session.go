package sshgate

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Exit codes of sessions and commands; those of the command relay.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitRefused     = 3
	exitNotFound    = 4
	exitTaken       = 5
	exitUnreachable = 69
)

const (
	maxSessions = 4
	// startTime is how long a session channel may stay without a command.
	startTime = 10 * time.Second
	// lastWords is how long the end of a session waits for a peer that does not read.
	lastWords = time.Second
)

// session is one session channel.
type session struct {
	c       *conn
	ch      ssh.Channel
	ctx     context.Context // ends with the channel, or when the session shall end
	cancel  context.CancelFunc
	notices notices
	over    chan struct{} // closed when the session has ended

	mu     sync.Mutex
	pty    bool
	begun  bool
	asked  bool // somebody wants it to end
	code   int
	starts chan string // the command, "" for a shell
}

// session runs one session channel to its end.
func (c *conn) session(open ssh.NewChannel) {
	s := &session{c: c, over: make(chan struct{}), starts: make(chan string, 1)}
	s.notices.wake = make(chan struct{}, 1)
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	defer s.cancel()
	if !c.join(s) {
		_ = open.Reject(ssh.ResourceShortage, "too many sessions on this connection")
		return
	}
	defer c.part(s)
	ch, reqs, err := open.Accept()
	if err != nil {
		return
	}
	s.ch = ch
	if !c.spawn(func() { s.requests(reqs) }) {
		return
	}
	late := time.NewTimer(startTime)
	defer late.Stop()
	select {
	case command := <-s.starts:
		s.finish(s.run(command))
	case <-late.C:
		s.finish(exitUsage)
	case <-s.ctx.Done():
		s.finish(s.exit(exitFailure))
	}
}

func (c *conn) join(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.leaving || len(c.sessions) >= maxSessions {
		return false
	}
	c.sessions[s] = struct{}{}
	c.used()
	return true
}

func (c *conn) part(s *session) {
	close(s.over)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
	c.used()
}

// requests answers what the client wants of the session, and drains the rest:
// unread requests would stop the whole connection.
func (s *session) requests(reqs <-chan *ssh.Request) {
	for req := range reqs {
		_ = req.Reply(s.request(req), nil)
	}
	s.cancel()
}

func (s *session) request(req *ssh.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch req.Type {
	case "pty-req":
		s.pty = true
		return true
	case "shell":
		if s.begun || len(req.Payload) > 0 {
			return false
		}
		s.begun = true
		s.starts <- ""
		return true
	case "exec":
		var exec struct{ Command string }
		if s.begun || ssh.Unmarshal(req.Payload, &exec) != nil {
			return false
		}
		s.begun = true
		s.starts <- exec.Command
		return true
	}
	return false // env, x11-req, auth-agent-req@openssh.com, subsystem, signal, …
}

// quit asks the session to end with an exit code.
func (s *session) quit(code int) {
	s.mu.Lock()
	if !s.asked {
		s.asked, s.code = true, code
	}
	s.mu.Unlock()
	s.cancel()
}

// exit is the code that the session was asked to end with, or otherwise.
func (s *session) exit(otherwise int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked {
		return s.code
	}
	return otherwise
}

func (s *session) hasPTY() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pty
}

// finish says the exit code and closes the channel, without waiting for a peer
// that does not read.
func (s *session) finish(code int) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.c.recovered("finish")
		_ = s.ch.CloseWrite()
		_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(code)}))
		_ = s.ch.Close()
	}()
	patience := time.NewTimer(lastWords)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
}

// run runs a command, or what a session without one is for.
func (s *session) run(command string) int {
	s.ordered()
	words, err := splitWords(command)
	switch {
	case err != nil:
		return s.call().fail(usage(err.Error()))
	case len(words) == 0:
		return s.follow(&plainView{s: s})
	case words[0] == "up":
		if len(words) == 2 && words[1] == "--json" {
			return s.follow(&jsonView{s: s})
		}
		return s.follow(&plainView{s: s})
	}
	return s.call().dispatch(words)
}

// ordered waits until the requests that came before the session are done.
func (s *session) ordered() {
	turn := make(chan struct{})
	s.c.jobs.post(func() { close(turn) })
	select {
	case <-turn:
	case <-s.ctx.Done():
	}
}

func (s *session) stdout() io.Writer { return s.terminal(s.ch) }
func (s *session) stderr() io.Writer { return s.terminal(s.ch.Stderr()) }

// terminal gives what writes lines as the peer needs them.
func (s *session) terminal(w io.Writer) io.Writer {
	if s.hasPTY() {
		return crlf{w}
	}
	return w
}

// crlf ends lines as a raw terminal needs it.
type crlf struct{ w io.Writer }

func (t crlf) Write(p []byte) (int, error) {
	if _, err := t.w.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// maxLine is the longest line of input that is looked at.
const maxLine = 256

// input gives what comes on stdin: single keys with a terminal, else lines. The
// end of stdin means nothing: ssh without a terminal has none from the start.
func (s *session) input(keys chan<- string) {
	var line []byte
	buf := make([]byte, 256)
	for {
		n, err := s.ch.Read(buf)
		for _, b := range buf[:n] {
			key := ""
			switch {
			case b == 3:
				key = "q"
			case s.hasPTY() && strings.IndexByte("qQrR", b) >= 0:
				key = strings.ToLower(string(b))
			case b == '\n' || b == '\r':
				key, line = string(line), line[:0]
			case len(line) < maxLine:
				line = append(line, b)
			}
			if key == "" {
				continue
			}
			select {
			case keys <- key:
			case <-s.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}
