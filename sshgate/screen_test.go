package sshgate

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
)

// show starts a session with the given terminal and collects its output.
func show(t *testing.T, c *ssh.Client, term string, columns int, env map[string]string) (*ssh.Session, *output, io.Writer) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for name, value := range env {
		_ = s.Setenv(name, value)
	}
	if term != "" {
		if err := s.RequestPty(term, 24, columns, nil); err != nil {
			t.Fatal(err)
		}
	}
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	s.Stdout = out
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	return s, out, in
}

// TestColours: output is coloured only for a terminal that supports colours, unless the user disables
// them.
func TestColours(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		term string
		env  map[string]string
		want bool
	}{
		"terminal":    {"xterm-256color", nil, true},
		"no terminal": {"", nil, false},
		"dumb":        {"dumb", nil, false},
		"NO_COLOR":    {"xterm", map[string]string{"NO_COLOR": "1"}, false},
		"TERM":        {"xterm", map[string]string{"TERM": "dumb"}, false},
		"empty":       {"xterm", map[string]string{"NO_COLOR": ""}, true},
		"other":       {"xterm", map[string]string{"LANG": "C"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			a := b.store.alias("a", 1)
			c := b.mustDial(b.alice)
			forwards(t, c, "a", 80)
			_, out, _ := show(t, c, x.term, 120, x.env)
			eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
			e := b.store.event(1, a)
			b.store.publish(attemptEnded(t, b, e)...)
			eventually(t, 30*time.Second, "line", func() bool { return contains(out, e.ID.String()) })
			if got := contains(out, "\x1b[32m[200]\x1b[0m POST"); got != x.want || !x.want && contains(out, "\x1b") {
				t.Errorf("colours %v, want %v: %q", got, x.want, out)
			}
		})
	}
}

// TestNarrowWindow: the path of a line is shortened to the width of the window, even after the window was
// resized.
func TestNarrowWindow(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
	c := b.mustDial(b.alice)
	forwards(t, c, "a", 80)
	s, out, _ := show(t, c, "dumb", 200, nil)
	eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
	e := b.store.event(1, a)
	e.Target = []byte("/" + strings.Repeat("x", 300))
	for n, columns := range []int{200, 120, 80, 0} {
		if err := s.WindowChange(24, columns); err != nil {
			t.Fatal(err)
		}
		// Requests of a channel are answered in order, so the reply shows that the earlier ones were handled.
		if ok, err := s.SendRequest("subsystem", true, nil); ok || err != nil {
			t.Fatal(ok, err)
		}
		e.Attempts[0].N = n + 1
		before := strings.Count(out.String(), "[200]")
		b.store.publish(attemptEnded(t, b, e)...)
		eventually(t, 30*time.Second, "line", func() bool {
			text := out.String()
			return strings.Count(text, "[200]") > before && strings.HasSuffix(text, "\r\n")
		})
		lines := strings.Split(strings.TrimSuffix(out.String(), "\r\n"), "\r\n")
		last := lines[len(lines)-1]
		if n := utf8.RuneCountInString(last); columns > 0 && n >= columns || columns == 0 && n < 300 {
			t.Errorf("%d columns: %d in %q", columns, n, last)
		}
	}
}

// TestEndsOfSession: Ctrl+D, Ctrl+C, a typed q and SIGTERM end a live log with the right exit code, and the forward of
// its connection stays.
func TestEndsOfSession(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		term string
		end  func(s *ssh.Session, in io.Writer)
		code int
	}{
		"ctrl-d": {"xterm", func(_ *ssh.Session, in io.Writer) { _, _ = in.Write([]byte{4}) }, 0},
		"ctrl-c": {"", func(_ *ssh.Session, in io.Writer) { _, _ = in.Write([]byte{3}) }, 0},
		"line q": {"", func(_ *ssh.Session, in io.Writer) { _, _ = in.Write([]byte("q\n")) }, 0},
		"TERM":   {"xterm", func(s *ssh.Session, _ io.Writer) { _ = s.Signal(ssh.SIGTERM) }, cli.ExitInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			c := b.mustDial(b.alice)
			forwards(t, c, "a", 80)
			s, _, in := show(t, c, x.term, 80, nil)
			eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
			x.end(s, in)
			code := 0
			if err := s.Wait(); err != nil {
				exit, ok := err.(*ssh.ExitError)
				if !ok {
					t.Fatal(err)
				}
				code = exit.ExitStatus()
			}
			if code != x.code {
				t.Errorf("exit %d, want %d", code, x.code)
			}
			if b.store.state("a") != relay.TunnelOnline {
				t.Error("the forward ended with the session")
			}
		})
	}
}

// TestUnreadLogStopsNothing: while the client does not read the log, tunnels, commands and pings of
// the same connection continue.
func TestUnreadLogStopsNothing(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.PingInterval, o.PingTimeout = 50*time.Millisecond, time.Minute })
	a := b.store.alias("a", 1)
	c := b.mustDial(b.alice)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		go func() {
			buf := make([]byte, 64)
			n, _ := ch.Read(buf)
			_, _ = fmt.Fprintf(ch, "hello %s", buf[:n])
			_ = ch.Close()
		}()
	})
	forwards(t, c, "a", 80)
	ch, reqs, err := c.OpenChannel("session", nil) // the test never reads its output
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(reqs)
	if ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Line string }{"events a -f --json"})); !ok || err != nil {
		t.Fatal(ok, err)
	}
	eventually(t, time.Minute, "subscription", func() bool { return b.store.subscribers() == 1 })
	b.flood(b.store.event(1, a), 4000)
	eventually(t, time.Minute, "all taken", b.store.taken)
	ask(t, b.online("a"))
	if out, _, code := runs(t, c, "whoami"); code != 0 || out != "alice\n" {
		t.Errorf("exit %d: %q", code, out)
	}
	if b.store.state("a") != relay.TunnelOnline {
		t.Error("not online")
	}
	ch.Close()
}

// TestCommandsBesideForwards: commands work on a connection that has tunnels, with a terminal and
// without, and the tunnels stay open.
func TestCommandsBesideForwards(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	forwards(t, c, "a", 80)
	for range 3 * maxSessions {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.RequestPty("xterm", 24, 80, nil); err != nil {
			t.Fatal(err)
		}
		out, err := s.Output("whoami")
		if err != nil || string(out) != "alice\r\n" {
			t.Errorf("%q, %v", out, err)
		}
		if plain, _, _ := runs(t, c, "whoami"); plain != "alice\n" {
			t.Errorf("%q", plain)
		}
	}
	if b.store.state("a") != relay.TunnelOnline {
		t.Error("the forward ended with a command")
	}
}
