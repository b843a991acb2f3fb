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

	"golang.org/x/crypto/ssh"

	"relay/record"
)

// Command is one question to a relay, the same over SSH and over the API.
type Command struct {
	Name   string // whoami, aliases, events, show, replay, replay-queued, share
	Arg    string // alias or event id
	N      int    // events: how many; 0 = as many as the relay thinks right
	Follow bool   // events: go on with those to come, one object a line
}

// Remote runs commands. Run writes the JSON answer to out as it comes; errors are
// *Error, or those of ctx and out.
type Remote interface {
	Run(ctx context.Context, c Command, out io.Writer) error
}

// line is the command as it is typed behind ssh HOST.
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
	return strings.Join(append(words, "--json"), " ")
}

// quote keeps a word one word for whoever splits like a shell.
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

// Run makes a connection of its own for the command.
func (s SSH) Run(ctx context.Context, c Command, out io.Writer) error {
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
	wg.Go(func() { ping(alive, conn.Client.Conn) })
	wg.Go(func() {
		_ = watchConn(alive, conn.wire)
		conn.Close()
	})
	session, err := conn.NewSession()
	if err == nil {
		var said bytes.Buffer
		session.Stdout, session.Stderr = out, &said
		if err = session.Run(c.line()); err != nil {
			err = sessionError(err, said.Bytes())
		}
	}
	conn.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// sessionError is what a failed command said on stderr, with its exit status.
func sessionError(err error, said []byte) error {
	var exit *ssh.ExitError
	if !errors.As(err, &exit) {
		return &Error{Exit: ExitUnreachable, Text: "lost the connection to the relay", Cause: err}
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	last := lines[len(lines)-1]
	var p record.Problem
	if json.Unmarshal([]byte(last), &p) == nil && p.Code != "" {
		return problemError(exit.ExitStatus(), &p)
	}
	return Errorf(exit.ExitStatus(), "%s", last)
}

func problemError(exit int, p *record.Problem) error {
	e := Errorf(exit, "%s", p.Error())
	for _, f := range p.Errors {
		e.Text += "; " + f.Location + ": " + f.Message
	}
	return e
}
