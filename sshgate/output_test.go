package sshgate

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/budget"
)

// TestUnreadCommandIsCut: the output of a session command is reserved in the budget until the peer reads it. If the
// peer reads nothing for the stall time, the session ends with an exit status, and the reservation is released even if
// the peer keeps the channel open. If the budget has no space, the command prints an error.
func TestUnreadCommandIsCut(t *testing.T) {
	t.Parallel()
	const size = 6 << 20 // this is more than the window of a channel
	shared := budget.New(128 << 20)
	with := func(stall time.Duration) *fixture {
		var channels atomic.Int64
		return newFixture(t, withAPI(&channels, func(w http.ResponseWriter, _ *http.Request, _ relay.Actor) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"text":"`+strings.Repeat("a", size)+`"}`)
		}), func(o *Options) { o.StallTimeout, o.Budget = stall, shared })
	}
	b := with(3 * time.Second)
	ch, reqs, err := b.mustDial(b.alice).OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan bool, 1)
	go func() {
		status := false
		for req := range reqs {
			status = status || req.Type == "exit-status"
		}
		said <- status
	}()
	if ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Line string }{"show evt_x --json"})); !ok || err != nil {
		t.Fatal(ok, err)
	}
	eventually(t, 30*time.Second, "reservation", func() bool { return shared.Stats().Used >= size })
	eventually(t, 30*time.Second, "the end of a session that nobody reads", func() bool { return shared.Stats().Used == 0 })
	if !<-said {
		t.Error("the session ended without an exit status")
	}

	b = with(time.Minute) // the peers of this relay read, though perhaps not within 3 s
	held := &budget.Hold{Budget: shared, Account: b.alice.actor.Account}
	if err := held.Set(shared.Share()); err != nil {
		t.Fatal(err)
	}
	s, err := b.mustDial(b.alice).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.CombinedOutput("show evt_x --json")
	if err == nil || len(out) > 1000 || !strings.Contains(string(out), "holds as many bytes as it may") {
		t.Errorf("without space: %v, %d bytes: %.200s", err, len(out), out)
	}
	held.Release()
	if s, err = b.mustDial(b.alice).NewSession(); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Output("show evt_x --json"); err != nil || len(out) != size+len(`{"text":""}`)+1 {
		t.Errorf("a peer that reads got %d bytes: %v", len(out), err)
	}
	eventually(t, 30*time.Second, "release", func() bool { return shared.Stats().Used == 0 })
}
