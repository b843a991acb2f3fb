package sshgate

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/sshgate/shell"
)

// TestWait: an event that comes while somebody waits is shown once it has ended; one
// that was there before, or does not match, is not.
func TestWait(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
	b.store.event(1, a) // long ago
	c := b.mustDial(b.alice)
	type result struct {
		out  string
		code int
	}
	done := make(chan result, 1)
	go func() {
		out, _, code := runs(t, c, "wait a --path /hook --method post --timeout 1m --json")
		done <- result{out, code}
	}()
	eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
	at := time.Now().Add(time.Second)
	later := func(n byte, change func(e *relay.Event)) *relay.Event {
		e := b.store.event(n, a)
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		e.ReceivedAt = at
		change(e)
		return e
	}
	other := later(2, func(e *relay.Event) { e.Target = []byte("/other") })
	b.store.publish(attemptEnded(t, b, other)...)
	e := later(3, func(e *relay.Event) { e.State = relay.StateDelivering })
	b.store.publish(relay.FeedItem{Name: "event", Alias: a.ID})
	b.store.mu.Lock()
	ended := *e
	ended.State = relay.StateDelivered
	b.store.events[e.ID] = &ended
	b.store.mu.Unlock()
	b.store.publish(relay.FeedItem{Name: "event", Alias: a.ID})
	if r := <-done; r.code != 0 || !strings.HasPrefix(r.out, `{"id":"`+e.ID.String()+`"`) || !strings.Contains(r.out, `"state":"delivered"`) || !strings.Contains(r.out, `"attempts":[`) {
		t.Errorf("%+v", r)
	}
	eventually(t, 30*time.Second, "subscription closed", func() bool { return b.store.subscribers() == 0 })
}

// TestWaitIsInterrupted: Ctrl+C at a terminal ends a command that waits.
func TestWaitIsInterrupted(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.alias("a", 1)
	c := b.mustDial(b.alice)
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_ = s.RequestPty("xterm", 24, 80, nil)
	in, _ := s.StdinPipe()
	if err := s.Start("wait a --timeout 1h"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
	_, _ = in.Write([]byte{3})
	if exit, ok := s.Wait().(*ssh.ExitError); !ok || exit.ExitStatus() != shell.ExitInterrupted {
		t.Errorf("exit %v", exit)
	}
}
