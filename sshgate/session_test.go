package sshgate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/sshgate/shell"
)

// attemptEnded returns the feed items for the end of an event's first attempt.
func attemptEnded(t *testing.T, b *fixture, e *relay.Event) []relay.FeedItem {
	t.Helper()
	event := record.Summarise(e, b.srv.o.Site, time.Now())
	summary, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	attempt, err := json.Marshal(record.AttemptMessage{
		EventID: e.ID.String(), Alias: e.Alias, Event: event, Attempt: record.OfAttempt(&e.Attempts[0], false),
	})
	if err != nil {
		t.Fatal(err)
	}
	return []relay.FeedItem{
		{Name: "attempt", Alias: e.AliasID, Data: attempt},
		{Name: "event", Alias: e.AliasID, Data: summary},
		{Name: "attempt", Alias: e.AliasID, Data: attempt}, // the attempt is sent twice and must be shown once
	}
}

func TestSessionHeaderAndLog(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("stripe-dev", 1)
	other := b.store.alias("other", 1)
	b.store.queue(a, 3)
	p := b.openssh(b.alice, "-R", "stripe-dev:80:127.0.0.1:1", "127.0.0.1")
	p.stdin.Close() // the end of stdin does not end the session
	eventually(t, 30*time.Second, "header", func() bool { return contains(p.out, "replay-queued stripe-dev\n") })
	want := `Connected to relay relay.example.test
Alias stripe-dev is online
Public URL    http://stripe-dev.example.test:8080
Local target  as given in your -R
Press Ctrl+C to disconnect
3 events queued while offline; press R or run: relay replay-queued stripe-dev
`
	if got := p.out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	e, hidden := b.store.event(1, a), b.store.event(2, other)
	e.Target = []byte("/hook\x1b[2J")
	b.store.publish(attemptEnded(t, b, hidden)...)
	b.store.publish(attemptEnded(t, b, e)...)
	eventually(t, 30*time.Second, "log line", func() bool { return contains(p.out, e.ID.String()) })
	line := strings.TrimPrefix(p.out.String(), want)
	if !regexp.MustCompile(`^\d\d:\d\d:\d\d \[200\] POST /hook\\x1b\[2J \(23ms\) ` + e.ID.String() + "\n$").MatchString(line) {
		t.Errorf("log %q", line)
	}
	select {
	case <-p.exited:
		t.Error("the session has ended")
	default:
	}
}

// TestRefusedHostIsToldOnce: if the local server refuses the Host header, the log of plain ssh says so, and how to set
// the header. It says this only once per session.
func TestRefusedHostIsToldOnce(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("stripe-dev", 1)
	p := b.openssh(b.alice, "-R", "stripe-dev:80:127.0.0.1:1", "127.0.0.1")
	eventually(t, 30*time.Second, "header", func() bool { return contains(p.out, "Press Ctrl+C") })
	var last *relay.Event
	for n, by := range []string{"", "webpack-dev-server", "webpack-dev-server"} {
		last = b.store.event(byte(n+1), a)
		last.Status, last.Attempts[0].Status, last.HostRefusedBy = 403, 403, by
		b.store.publish(attemptEnded(t, b, last)...)
	}
	marker := b.store.event(9, a)
	b.store.publish(attemptEnded(t, b, marker)...)
	eventually(t, 30*time.Second, "log lines", func() bool { return contains(p.out, marker.ID.String()) })
	out := p.out.String()
	if n := strings.Count(out, "warning: the local server (webpack-dev-server) refused the Host header"); n != 1 {
		t.Errorf("warned %d times:\n%s", n, out)
	}
	for _, remedy := range []string{"relay up with --host-header rewrite", "alias set stripe-dev hostHeader="} {
		if !strings.Contains(out, remedy) {
			t.Errorf("%q is not named:\n%s", remedy, out)
		}
	}
}

// TestRequestBesideTheHeader: the log of a session shows the requests that arrived while the session waited
// for its forwards.
func TestRequestBesideTheHeader(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
	c := b.mustDial(b.alice)
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := &output{}
	s.Stdout = out
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
	forwards(t, c, "a", 80)
	b.online("a")
	e := b.store.event(1, a)
	b.store.publish(attemptEnded(t, b, e)...)
	eventually(t, 30*time.Second, "log line", func() bool { return contains(out, e.ID.String()) })
	if text := out.String(); !strings.HasPrefix(text, "Connected to relay") || strings.Index(text, e.ID.String()) < strings.Index(text, "Press Ctrl+C") {
		t.Errorf("got\n%s", text)
	}
}

func TestSessionKeys(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"q": "q", "ctrl-c": "\x03"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			a := b.store.alias("a", 1)
			b.store.queue(a, 2)
			p := b.openssh(b.alice, "-tt", "-R", "a:80:127.0.0.1:1", "127.0.0.1")
			eventually(t, 30*time.Second, "header", func() bool { return contains(p.out, "Press Ctrl+C to disconnect\r\n") })
			_, _ = io.WriteString(p.stdin, "r")
			eventually(t, 30*time.Second, "released", func() bool { return contains(p.out, "delivering 2 queued events of a") })
			_, _ = io.WriteString(p.stdin, key)
			if code := p.code(t); code != 0 {
				t.Errorf("exit %d", code)
			}
		})
	}
}

func TestSessionWithoutForward(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	// newFixture sets FirstForward to 30 s. This session has no forward, so it would wait for the whole 30 s.
	b.srv.sessions.Shell.FirstForward = shell.FirstForward
	p := b.openssh(b.alice, "127.0.0.1")
	if code := p.code(t); code != 1 || !contains(p.out, "replay-queued") || !contains(p.out, "ssh -N -R ALIAS:80:localhost:3000 -p 2222 relay.example.test") {
		t.Errorf("exit %d: %s", code, p.out)
	}
}

func TestSessionOfRefusedForward(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.claiming = false
	b.store.alias("foreign", 2)
	var texts []string
	for _, alias := range []string{"foreign", "unknown"} {
		p := b.openssh(b.alice, "-R", alias+":80:127.0.0.1:1", "127.0.0.1")
		if code := p.code(t); code != cli.ExitTaken {
			t.Errorf("exit %d", code)
		}
		texts = append(texts, strings.ReplaceAll(p.out.String(), alias, "X"))
	}
	if texts[0] != texts[1] || !strings.Contains(texts[0], "was refused") {
		t.Errorf("foreign: %q, unknown: %q; want the same words", texts[0], texts[1])
	}
}

// TestFloodOfSessionRequests: an endless stream of window changes, signals and variables does not block the
// session.
func TestFloodOfSessionRequests(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) { _ = n.Reject(ssh.ConnectionFailed, "") })
	forwards(t, c, "a", 80)
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.RequestPty("xterm", 24, 80, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if i < 40 {
			_ = s.WindowChange(i, 80)
		}
		if i < 200 {
			_ = s.Signal(ssh.SIGUSR1)
		}
		_, _ = s.SendRequest("env", false, ssh.Marshal(struct{ K, V string }{"LANG", "C"}))
	}
	for name, want := range map[string]bool{"x11-req": false, "auth-agent-req@openssh.com": false, "subsystem": false, "shell": false, "env": false} {
		if ok, err := s.SendRequest(name, true, nil); ok != want || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	if _, err := b.online("a").Open(t.Context(), origin); relay.AsError(err).Code != relay.CodeLocalRefused {
		t.Errorf("open: %v", err)
	}
}

func TestSessionLimit(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	for range maxSessions {
		if _, err := c.NewSession(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.NewSession(); err == nil {
		t.Error("a fifth session was opened")
	}
}

// TestLogIsDroppedNotBlocked: lines for a peer that does not read its live log are dropped beyond a bound. When
// the peer reads again, it gets the number of dropped lines.
func TestLogIsDroppedNotBlocked(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
	c := b.mustDial(b.alice)
	forwards(t, c, "a", 80)
	ch, reqs, err := c.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(reqs)
	if ok, err := ch.SendRequest("shell", true, nil); !ok || err != nil {
		t.Fatal(ok, err)
	}
	eventually(t, time.Minute, "subscription", func() bool { return b.store.subscribers() == 1 })
	const sent = 6000 // this is more than the window and the queue of lines hold
	b.flood(b.store.event(1, a), sent)
	eventually(t, time.Minute, "all taken", b.store.taken)
	shown, lost := 0, 0
	r := bufio.NewScanner(ch)
	r.Buffer(nil, 1<<20)
	for shown+lost < sent && r.Scan() {
		var n int
		if _, err := fmt.Sscanf(r.Text(), "… %d lines dropped", &n); err == nil {
			lost += n
		} else if strings.Contains(r.Text(), "evt_") {
			shown++
		}
	}
	if lost == 0 || shown+lost != sent {
		t.Errorf("%d shown, %d dropped of %d", shown, lost, sent)
	}
	ch.Close()
}

// flood publishes the given number of attempts of an event with a path of 600 bytes. The stored event stays
// unchanged, because tests may read it at the same time.
func (b *fixture) flood(stored *relay.Event, attempts int) {
	t, e := b.t.(*testing.T), *stored
	e.Attempts = slices.Clone(e.Attempts)
	e.Target = []byte("/" + strings.Repeat("x", 600))
	for n := range attempts {
		e.Attempts[0].N = n + 1
		b.store.publish(attemptEnded(t, b, &e)...)
	}
}

// TestQuickCommandIsAnsweredFirst: the reply to the exec request comes before the end of the channel, even
// for a very quick command.
func TestQuickCommandIsAnsweredFirst(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	for range 200 {
		if out, _, code := runs(t, c, "version"); out != "relayd v9-test\n" || code != 0 {
			t.Fatalf("exit %d: %q", code, out)
		}
	}
}

// TestLogOutlivesItsFeed: when its feed ends, a live log continues with the next feed. After each gap, it
// says once that lines may be missing.
func TestLogOutlivesItsFeed(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.srv.sessions.Shell.FeedRetry = time.Millisecond
	a := b.store.alias("a", 1)
	c := b.mustDial(b.alice)
	forwards(t, c, "a", 80)
	_, out, _ := show(t, c, "", 80, nil)
	eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
	b.store.endFeeds()
	eventually(t, 30*time.Second, "next feed", func() bool { return contains(out, "some requests are not shown") })
	e := b.store.event(1, a)
	b.store.publish(attemptEnded(t, b, e)...)
	eventually(t, 30*time.Second, "line", func() bool { return contains(out, e.ID.String()) })
	for range 3 { // while Postgres is unavailable, every change at another node may cause a resync
		b.store.publish(relay.FeedItem{Name: "resync"})
	}
	next := b.store.event(2, a)
	b.store.publish(attemptEnded(t, b, next)...)
	eventually(t, 30*time.Second, "next line", func() bool { return contains(out, next.ID.String()) })
	if n := strings.Count(out.String(), "some requests are not shown"); n != 2 {
		t.Errorf("it was said %d times that requests are missing, want 2: %s", n, out)
	}
}

// maxSessions and maxLingering repeat the limits of package session.
const maxSessions, maxLingering = 4, 16
