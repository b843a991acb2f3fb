package sshgate

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// hostileTexts are sequences that must not reach a terminal unescaped.
var hostileTexts = []string{
	"\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://evil\x1b\\", "\x1bP+q\x1b\\", "\x00", "\x07", "\b\b\b", "\r", "\x7f", "\v\f",
	"\u0080", "\u0085", "\u009b31m", "\u009d0;x\u009c", "\x9b31m", "\xff\xfe", "\xc3", "\xed\xa0\x80", "\u202e", "\u2066", "\u2069",
	"\u200b", "\u200d", "\u2028", "\u2029", "\ufeff", "\u00ad", "\u061c", "\U000e0041", "\U000e0100", "\ufe0f", "\u115f", "%s%n", "界", "é",
	"' $(x) `y`", `\x1b`, "\t",
}

// hostile returns a random text that contains some of hostileTexts, without line ends.
func hostile(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(8) {
		b.WriteString("a" + hostileTexts[r.IntN(len(hostileTexts))])
	}
	return b.String()
}

// harmless returns an error if a text is not UTF-8, or contains an invisible character or a control character
// other than a line end.
func harmless(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("no UTF-8: %q", text)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if safe := record.SafeText(line); safe != line {
			return fmt.Errorf("%q", line)
		}
	}
	return nil
}

// hostileEvent returns an event with hostile text in every value that comes from outside.
func hostileEvent(b *fixture, a *relay.Alias, n byte, r *rand.Rand) *relay.Event {
	e := b.store.event(n, a)
	b.store.mu.Lock() // a command that follows events may be reading the map
	defer b.store.mu.Unlock()
	text := func() []byte { return []byte(hostile(r)) }
	e.Target = append([]byte("/"), text()...)
	e.Method, e.Host = "POST", string(text())
	e.Provider = relay.Provider{Name: string(text()), EventType: string(text()), DeliveryID: string(text())}
	body := append(text(), "\n\tline "+string(text())...)
	e.Request.Head = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nX-%s: %s\r\nContent-Length: %d\r\n\r\n", e.Target, "Bad", text(), len(body))
	e.Request.Body = relay.Body{Data: body, Stored: int64(len(body)), Size: int64(len(body)), State: relay.BodyComplete}
	at := &e.Attempts[0]
	at.Actor = "token:" + string(text())
	at.Response.Head = fmt.Appendf(nil, "HTTP/1.1 200 %s\r\nX-Evil: %s\r\n\r\n", text(), text())
	at.Response.Body = e.Request.Body
	second := *at
	second.N, second.Kind, second.State, second.HasResponse = 2, relay.KindReplay, relay.StateFailed, false
	second.Error = &relay.Fault{Code: relay.CodeLocalRefused, Message: "dial: " + string(text())}
	e.Attempts = append(e.Attempts, second)
	e.AttemptCount, e.State, e.Error = 2, relay.StateFailed, second.Error
	return e
}

// runs runs a command on a connection and returns its output and exit code.
func runs(t *testing.T, c *ssh.Client, command string) (stdout, stderr string, code int) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out, bad strings.Builder
	s.Stdout, s.Stderr = &out, &bad
	if err := s.Run(command); err != nil {
		exit, ok := err.(*ssh.ExitError)
		if !ok {
			t.Fatalf("%.60q: %v", command, err)
		}
		code = exit.ExitStatus()
	}
	return out.String(), bad.String(), code
}

// TestNothingHostileReachesTheTerminal shows events with hostile paths, headers, reasons, bodies and
// error texts: 200 of them in every live log and some of them in every command.
func TestNothingHostileReachesTheTerminal(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
	r := rand.New(rand.NewPCG(7, 7))
	c := b.mustDial(b.alice)
	forwards(t, c, "a", 80)
	watcher := b.mustDial(b.alice)
	live := map[string]io.Reader{}
	for _, command := range []string{"", "events a -f -n 1", "events a -f -n 1 --json"} {
		conn := c
		if strings.HasPrefix(command, "events") {
			conn = watcher
		}
		s, err := conn.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		live[command], _ = s.StdoutPipe()
		if command == "" {
			err = s.Shell()
		} else {
			err = s.Start(command)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, "followers", func() bool { return b.store.subscribers() == len(live) })
	var events []*relay.Event
	for n := range 200 {
		e := hostileEvent(b, a, byte(n+1), r)
		events = append(events, e)
		b.store.publish(attemptEnded(t, b, e)...)
	}
	for name, out := range live {
		for seen := 0; seen < 150; { // some of the 200 lines may have been dropped
			buf := make([]byte, 64<<10)
			n, err := out.Read(buf)
			if err != nil {
				t.Fatalf("%q: %v after %d events", name, err, seen)
			}
			seen += strings.Count(string(buf[:n]), "evt_")
			text := string(buf[:n])
			for !utf8.ValidString(text) && len(text) > n-4 { // a read may end within a character
				text = text[:len(text)-1]
			}
			if err := harmless(strings.ToValidUTF8(text, "")); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
		}
	}
	commands := []string{"events a -n 200", "events a -n 200 --json"}
	for _, e := range events[:40] {
		commands = append(commands, "show "+e.ID.String(), "show "+e.ID.String()+" --json")
		commands = append(commands, "'"+strings.ReplaceAll(strings.ReplaceAll(hostile(r), "'", ""), "\x00", "")+"'",
			"events '"+strings.NewReplacer("'", "", "\x00", "").Replace(hostile(r))+"'")
	}
	for _, command := range commands {
		stdout, stderr, _ := runs(t, c, command)
		if err := harmless(stdout + stderr); err != nil {
			t.Fatalf("%.60q: %v", command, err)
		}
		if strings.HasSuffix(command, "--json") && !json.Valid([]byte(stdout)) {
			t.Fatalf("%.40q: no JSON: %s", command, stdout)
		}
	}
}

// TestVisibleJSONMeansTheSame: escaping changes the text of JSON but not its value.
func TestVisibleJSONMeansTheSame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		want := strings.ToValidUTF8(hostile(r), "\ufffd")
		plain, err := json.Marshal(map[string]string{"x": want})
		if err != nil {
			t.Fatal(err)
		}
		text := record.SafeJSON(plain)
		var back map[string]string
		if err := json.Unmarshal([]byte(text), &back); err != nil || back["x"] != want {
			t.Fatalf("%q became %q, %v", want, back["x"], err)
		}
		if err := harmless(text); err != nil {
			t.Fatal(err)
		}
	}
}
