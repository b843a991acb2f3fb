package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// Command is one request to a relay, the same over SSH and over the API.
type Command struct {
	Name    string // whoami, aliases, events, show, replay, replay-queued, share, export, wait; over SSH also token
	Arg     string // alias or event id
	N       int    // events: how many; 0 = as many as the relay thinks right
	Follow  bool   // events: go on with those to come, one object a line
	Expires string // share: how long it works, such as 12h or 7d, or never; "" = 7d
	View    bool   // share: its holder may see headers and body
	Format  string // export: curl, har, json, go, js or python
	Path    string // wait: what the path has to start with
	Method  string // wait: the method that it has to have
	Title   string // token: its name
	// Timeout is how long wait waits.
	Timeout time.Duration
	// Say gets lines for people, not yet safe to print: that a followed stream was lost
	// or is back. It may be nil.
	Say func(string)
}

// Remote runs commands. Run writes the JSON answer to out as it arrives, for export the
// text itself. Errors are *Error, or those of ctx and out.
type Remote interface {
	Run(ctx context.Context, c Command, out io.Writer) error
	// Endpoint says in words for people which way commands go.
	Endpoint() Endpoint
}

// Endpoint is how a relay is reached.
type Endpoint struct {
	Name string // ssh or api
	Addr string // HOST:PORT or base URL
}

// line returns the command as it is typed after ssh HOST.
func (c Command) line() string {
	words := []string{c.Name}
	if c.Arg != "" {
		words = append(words, quote(c.Arg))
	}
	if c.N > 0 {
		words = append(words, "-n", strconv.Itoa(c.N))
	}
	if c.Follow {
		words = append(words, "-f")
	}
	if c.View {
		words = append(words, "--view")
	}
	timeout := ""
	if c.Timeout > 0 {
		timeout = relay.FormatDuration(c.Timeout)
	}
	for _, f := range [][2]string{
		{"expires", c.Expires}, {"format", c.Format}, {"path", c.Path}, {"method", c.Method}, {"timeout", timeout}, {"name", c.Title},
	} {
		if f[1] != "" {
			words = append(words, "--"+f[0], quote(f[1]))
		}
	}
	if c.Name != "export" {
		words = append(words, "--json")
	}
	return strings.Join(words, " ")
}

// quote quotes a word for a shell where that is necessary.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// SSH runs commands in a session of the relay.
type SSH struct{ Dialer *Dialer }

// Endpoint returns the SSH address.
func (s SSH) Endpoint() Endpoint {
	addr, err := s.Dialer.Addr()
	if err != nil {
		addr = s.Dialer.Server
	}
	return Endpoint{Name: "ssh", Addr: addr}
}

// Run makes a connection for the command, and a new one whenever the connection is lost
// while events are followed.
func (s SSH) Run(ctx context.Context, c Command, out io.Writer) error {
	if c.Follow {
		return follow(ctx, s, c, out)
	}
	return s.run(ctx, c, out, func() {})
}

// run makes one connection for the command; begun is called when it is established.
func (s SSH) run(ctx context.Context, c Command, out io.Writer, begun func()) error {
	conn, err := s.Dialer.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	alive, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { _ = conn.keepalive(alive, nil) })
	begun()
	err = runSession(conn, c, out)
	conn.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func runSession(conn *Conn, c Command, out io.Writer) error {
	session, err := conn.NewSession()
	if err != nil {
		return &Error{Exit: ExitUnreachable, Text: "lost the connection to the relay", Cause: err}
	}
	if !c.Follow {
		out = &limitedWriter{out: out, left: maxAnswer}
	}
	var said bytes.Buffer
	session.Stdout, session.Stderr = out, &limitedWriter{out: &said, left: maxStderr}
	if err := session.Run(c.line()); err != nil {
		return sessionError(err, said.Bytes())
	}
	return nil
}

// maxStderr bounds what is read of a command's error output.
const maxStderr = 1 << 20

// sessionError returns the error that a failed command wrote to stderr, with its exit
// status.
func sessionError(err error, said []byte) error {
	var exit *ssh.ExitError
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	if !errors.As(err, &exit) {
		return &Error{Exit: ExitUnreachable, Text: "lost the connection to the relay", Cause: err}
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	last := lines[len(lines)-1]
	var p record.Problem
	if json.Unmarshal([]byte(last), &p) == nil && p.Code != "" {
		return problemError(exit.ExitStatus(), &p)
	}
	return Errorf(exit.ExitStatus(), "%s", strings.TrimPrefix(last, "relay: "))
}

func problemError(exit int, p *record.Problem) *Error {
	e := Errorf(exit, "%s", p.Error())
	e.transient = !permanent(p.Code)
	for _, f := range p.Errors {
		e.Text += "; " + f.Location + ": " + f.Message
	}
	return e
}
