package sshgate

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/sshgate/shell"
)

// commandCase is a command line and what it must give.
type commandCase struct {
	command  string
	code     int
	out, err string // must be within
}

// plainCases are about help, lists and wrong use.
func plainCases(e string) []commandCase {
	return []commandCase{
		{"help", 0, "replay-queued ALIAS", ""},
		{"help --json", 0, `{"name":"share"`, ""},
		{"help events", 0, "usage: ssh -p 2222 relay.example.test events ALIAS [FILTER…] [-n N] [-f]", ""},
		{"help events", 0, "  ssh -p 2222 relay.example.test events stripe-dev -n 50\n", ""},
		{"events --help", 0, "usage: ssh -p 2222 relay.example.test events", ""},
		{"--help", 0, "Open a tunnel:", ""},
		{"help replya", 2, "", "did you mean replay?"},
		{"evnts stripe-dev", 2, "", "did you mean events?"},
		{"REPLAY x", 2, "", "did you mean replay?"},
		{"xyzzy", 2, "", `unknown command "xyzzy"; the command help lists all`},
		{"share x --expire 7d", 2, "", "did you mean --expires?"},
		{"share x --view=1", 2, "", "takes no value"},
		{"events stripe-dev --follow=yes", 2, "", "takes no value"},
		{"events -- stripe-dev", 0, "[200] POST /hook", ""},
		{"--json whoami", 0, `"user":"alice"`, ""},
		{"whoami", 0, "alice\n", ""},
		{"whoami --json", 0, `"user":"alice"`, ""},
		{"aliases", 0, "stripe-dev               never    http://stripe-dev.example.test:8080  3 events queued while offline", ""},
		{"aliases --json", 0, `"queuedEvents":3`, ""},
		{"events stripe-dev", 0, "[200] POST /hook (23ms) " + e, ""},
		{"events Stripe-Dev.example.test -n 1 --json", 0, `"nextCursor":null`, ""},
		{"events unknown", 4, "", "relay: "},
		{"events unknown --json", 4, "", `"code":"not-found"`},
		{"events", 2, "", "usage: events ALIAS"},
		{"events stripe-dev -n 0", 2, "", "1 to 200"},
		{"events stripe-dev -n", 2, "", "needs a value"},
		{"events stripe-dev -z", 2, "", "no flag"},
	}
}

// eventCases are about events and the account.
// TestTokenExpiresUnlessUsed: a token made over SSH expires after 90 days without use.
func TestTokenExpiresUnlessUsed(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	s, err := b.mustDial(b.alice).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.CombinedOutput("token --name laptop"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	left := time.Until(b.store.token.ExpiresAt).Round(time.Hour)
	if want := 90 * 24 * time.Hour; left != want || b.store.token.Renewal != want {
		t.Errorf("it expires in %v, and %v after a use", left, b.store.token.Renewal)
	}
}

func eventCases(e, blocked, failed string) []commandCase {
	return []commandCase{
		{"show " + e, 0, `< X-Evil: \x1b[2J`, ""},
		{"show " + e + " --json", 0, `"attempts":[`, ""},
		{"show evt_nonsense", 4, "", "relay: "},
		{"replay " + e, 0, "[200] POST /hook", ""},
		{"replay --json " + e, 0, `"attemptCount":1`, ""},
		{"replay " + failed, 1, "", ""},
		{"replay " + blocked + " --json", 1, "", `"reason":"incomplete"`},
		{"share " + e + " --json --expires=never", 0, `"replayUrl":"http://relay.example.test:8080/api/v1/events/shared/sharesecret/replay"`, ""},
		{"share " + e + " --expires soon", 2, "", "--expires takes"},
		{"mark " + e + " --pinned true --label bug-17 --note 'no name'", 0, e + "  pinned, label bug-17, note: no name\n", ""},
		{"mark " + e + " --label= --json", 0, `"label":null,"note":"no name"`, ""},
		{"mark " + e, 2, "", "needs --pinned, --label or --note"},
		{"mark " + e + " --pinned yes", 2, "", "true or false"},
		{"mark evt_00000000000000000000000000 --pinned true", 4, "", "relay: "},
		{"mark " + e + " --pinned=false --note= --json", 0, `"pinned":false,"label":null,"note":null`, ""},
		{"export " + e, 0, "curl -sS", ""},
		{"export " + e + " --format har", 0, `"log": {`, ""},
		{"export " + e + " --format=har --json", 0, `{"log":{`, ""},
		{"export " + e + " --json", 0, `{"format":"curl","id":"` + e + `","name":"` + e + `.sh","text":"`, ""},
		{"export " + e + " --format go", 0, "func TestEvent(", ""},
		{"export " + e + " --format pdf", 2, "", "--format is one of curl, har"},
		{"wait stripe-dev --timeout 1ms", 1, "", "no such event came within 1ms"},
		{"wait stripe-dev --timeout 2h", 2, "", "at most 1h"},
		{"wait unknown", 4, "", "relay: "},
		{"token --name laptop", 0, "rly_secret\n", ""},
		{"token", 0, "rly_secret\n", ""},
		{"token --json", 0, `"token":"rly_secret"`, ""},
		{"token --name 'a\x1b'", 2, "", "--name takes"},
		{"login", 0, "http://relay.example.test:8080/login/secret-for-alice\n", ""},
		{"login --json", 0, `"expiresAt"`, ""},
		{"keys", 0, "SHA256:", ""},
		{"keys --json", 0, `"data":[{`, ""},
		{"version", 0, "relayd v9-test\n", ""},
		{"version --json", 0, `{"version":"v9-test"}`, ""},
		{"replay-queued stripe-dev --json", 0, `{"alias":"stripe-dev","released":3}`, ""},
		{"replay-queued stripe-dev", 0, "0 released of stripe-dev\n", ""},
		{"format-disk \x1b[2J", 2, "", `unknown command`},
		{"\x1b]0;evil\a", 2, "", `\x1b]0;evil`},
		{"'unclosed", 2, "", "quote"},
		{strings.Repeat("x", 5000), 2, "", "too long"},
		{"whoami extra", 2, "", "usage: whoami"},
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("stripe-dev", 1)
	b.store.queue(a, 3)
	e := b.store.event(1, a)
	blocked := b.store.event(2, a)
	blocked.Blocker = relay.BlockedIncomplete
	failed := b.store.event(3, b.store.alias("broken", 1))
	failed.State, failed.Attempts[0].State = relay.StateFailed, relay.StateFailed
	c := b.mustDial(b.alice)
	ids := [3]string{e.ID.String(), blocked.ID.String(), failed.ID.String()}
	for _, x := range append(plainCases(ids[0]), eventCases(ids[0], ids[1], ids[2])...) {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		var stdout, stderr strings.Builder
		s.Stdout, s.Stderr = &stdout, &stderr
		code := 0
		if err := s.Run(x.command); err != nil {
			e, ok := err.(*ssh.ExitError)
			if !ok {
				t.Fatalf("%.60q: %v", x.command, err)
			}
			code = e.ExitStatus()
		}
		if code != x.code || !strings.Contains(stdout.String(), x.out) || !strings.Contains(stderr.String(), x.err) || (x.code == 0) != (stderr.Len() == 0) && x.err != "" {
			t.Errorf("%.60q: exit %d, stdout %q, stderr %q\nwant %d, %q, %q", x.command, code, stdout.String(), stderr.String(), x.code, x.out, x.err)
		}
		if strings.ContainsAny(stdout.String()+stderr.String(), "\x1b\a") {
			t.Errorf("%.60q: raw control characters", x.command)
		}
	}
}

func TestEventsFollow(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a := b.store.alias("a", 1)
	first, second := b.store.event(1, a), b.store.event(2, a)
	b.store.forget(second)
	p := b.openssh(b.alice, "127.0.0.1", "events a -f")
	eventually(t, 30*time.Second, "list", func() bool { return contains(p.out, first.ID.String()) })
	j := b.openssh(b.alice, "127.0.0.1", "events a -f --json")
	eventually(t, 30*time.Second, "two followers", func() bool { return b.store.subscribers() == 2 })
	b.store.publish(attemptEnded(t, b, second)...)
	eventually(t, 30*time.Second, "line", func() bool { return contains(p.out, second.ID.String()) })
	eventually(t, 30*time.Second, "object", func() bool { return contains(j.out, `{"id":"`+second.ID.String()) })
	_ = p.cmd.Process.Kill()
	_ = j.cmd.Process.Kill()
	eventually(t, 30*time.Second, "subscriptions closed", func() bool { return b.store.subscribers() == 0 })
}

// TestNothingIsMissedBetweenListAndFeed: what ends while events -f reads its list is
// printed, and once. It was in neither of the two.
func TestNothingIsMissedBetweenListAndFeed(t *testing.T) {
	t.Parallel()
	for name, listed := range map[string]bool{"after the list": false, "before the list": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &eventful{}
			b := newFixture(t, func(o *Options) { r.fakeStore, o.Read = o.Read.(*fakeStore), r })
			a := b.store.alias("a", 1)
			var e *relay.Event
			r.meanwhile = func() {
				e = b.store.event(1, a)
				b.store.publish(attemptEnded(t, b, e)...)
				if !listed {
					b.store.forget(e)
				}
			}
			s, err := b.mustDial(b.alice).NewSession()
			if err != nil {
				t.Fatal(err)
			}
			out := &output{}
			s.Stdout = out
			if err := s.Start("events a -f"); err != nil {
				t.Fatal(err)
			}
			eventually(t, 30*time.Second, "first line", func() bool { return contains(out, "[200] POST /hook") })
			last := b.store.event(2, a)
			b.store.publish(attemptEnded(t, b, last)...)
			eventually(t, 30*time.Second, "last line", func() bool { return contains(out, last.ID.String()) })
			if n := strings.Count(out.String(), e.ID.String()); n != 1 {
				t.Errorf("printed %d times: %s", n, out)
			}
		})
	}
}

// eventful is a reader during whose lists something happens.
type eventful struct {
	*fakeStore
	meanwhile func()
}

func (r *eventful) Events(ctx context.Context, who relay.Actor, q relay.Filter) (relay.Page, error) {
	r.meanwhile()
	return r.fakeStore.Events(ctx, who, q)
}

// TestEndOfAFollowedList: a store that did not answer is not taken for an alias that was
// removed, nor is a relay that stops.
func TestEndOfAFollowedList(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.alias("a", 1)
	c := b.mustDial(b.alice)
	stopping := func(is bool) {
		b.srv.mu.Lock()
		defer b.srv.mu.Unlock()
		b.srv.stopping = is
	}
	for _, x := range []struct {
		before func()
		code   int
		words  string
	}{
		{func() {}, shell.ExitFailure, "run the command again"},
		{func() { stopping(true) }, shell.ExitUnreachable, shell.StoppingText},
		{func() { stopping(false); delete(b.store.aliases, "a") }, shell.ExitNotFound, "the alias was removed"},
	} {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		bad := &output{}
		s.Stderr = bad
		if err := s.Start("events a -f"); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "subscription", func() bool { return b.store.subscribers() == 1 })
		b.store.mu.Lock()
		x.before()
		b.store.mu.Unlock()
		b.store.endFeeds()
		if exit, ok := s.Wait().(*ssh.ExitError); !ok || exit.ExitStatus() != x.code || !contains(bad, x.words) {
			t.Errorf("%v, %s, want %d, %s", exit, bad, x.code, x.words)
		}
		eventually(t, 30*time.Second, "its end", func() bool { return b.store.subscribers() == 0 })
	}
}
