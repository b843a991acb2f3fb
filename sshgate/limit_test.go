package sshgate

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/sshgate/shell"
)

// noLimits are Limits that let everything through.
type noLimits struct{}

func (noLimits) Create(relay.Actor) error { return nil }
func (noLimits) Replay(relay.Actor) error { return nil }

// counted are Limits that let so many calls through, by account and by credential.
type counted struct {
	most int

	mu sync.Mutex
	by map[string]int
}

func (c *counted) take(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[key]++; c.by[key] > c.most {
		return relay.Errorf(relay.CodeRateLimited, "too many of these calls; wait and try again")
	}
	return nil
}

func (c *counted) Create(who relay.Actor) error { return c.take("make " + who.AccountName) }
func (c *counted) Replay(who relay.Actor) error { return c.take("replay " + who.Credential) }

// TestLimits: what is made counts together for an account, replays for a key; wrong
// use and what is not there count for nothing.
func TestLimits(t *testing.T) {
	t.Parallel()
	limits := &counted{most: 3, by: map[string]int{}}
	b := newFixture(t, func(o *Options) { o.Limits = limits })
	e := b.store.event(1, b.store.alias("a", 1)).ID.String()
	c, other := b.mustDial(b.alice), b.mustDial(b.newKey("alice", 1))
	for range 5 {
		for _, line := range []string{
			"share evt_01k0000000000000000000000", "share " + e + " --expires soon", "token --name=", "replay evt_nonsense", "replay-queued unknown", "login x",
		} {
			if _, _, code := runs(t, c, line); code != shell.ExitUsage && code != shell.ExitNotFound {
				t.Fatalf("%s: exit %d", line, code)
			}
		}
	}
	for _, line := range []string{"login", "token --name x", "share " + e, "replay " + e, "replay-queued a", "replay " + e} {
		if _, bad, code := runs(t, c, line); code != 0 {
			t.Fatalf("%s: exit %d: %s", line, code, bad)
		}
	}
	for _, line := range []string{"login", "token --name x", "share " + e, "replay " + e, "replay-queued a"} {
		if out, bad, code := runs(t, c, line); code != shell.ExitFailure || out != "" || !strings.Contains(bad, "too many of these calls") {
			t.Errorf("%s: exit %d: %s%s", line, code, out, bad)
		}
		if _, bad, code := runs(t, c, line+" --json"); code != shell.ExitFailure || !strings.Contains(bad, `"code":"rate-limited"`) || !strings.Contains(bad, `"status":429`) {
			t.Errorf("%s --json: exit %d: %s", line, code, bad)
		}
	}
	if _, _, code := runs(t, other, "login"); code != shell.ExitFailure {
		t.Error("another key of the account makes more")
	}
	if _, bad, code := runs(t, other, "replay "+e); code != 0 {
		t.Errorf("another key may not replay: %s", bad)
	}
	forwards(t, c, "a", 80)
	_, out, in := show(t, c, "", 80, nil)
	_, _ = io.WriteString(in, "r\n")
	eventually(t, 30*time.Second, "refusal", func() bool {
		return contains(out, "replay-queued a: too many")
	})
}
