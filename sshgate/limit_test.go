package sshgate

import (
	"strings"
	"sync"
	"testing"

	"relay"
	"relay/cli"
)

// noLimits implements shell.Limits without any limit.
type noLimits struct{}

func (noLimits) Create(relay.Actor) error { return nil }

// counted implements shell.Limits and allows each account a fixed number of calls.
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

// TestLimits: each login link that an account makes by the command login counts against the limit of the account,
// whichever of its keys is used. Calls of the command with wrong arguments do not count.
func TestLimits(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.Limits = &counted{most: 3, by: map[string]int{}} })
	c, other := b.mustDial(b.alice), b.mustDial(b.newKey("alice", 1))
	for range 5 {
		if _, _, code := runs(t, c, "login x"); code != cli.ExitUsage {
			t.Fatalf("wrong use: exit %d", code)
		}
	}
	for range 3 {
		if out, bad, code := runs(t, c, "login"); code != 0 || out != "http://relay.example.test:8080/login/secret-for-alice\n" {
			t.Fatalf("exit %d: %s%s", code, out, bad)
		}
	}
	if out, bad, code := runs(t, other, "login"); code != cli.ExitFailure || out != "" || !strings.Contains(bad, "too many of these calls") {
		t.Errorf("another key of the account: exit %d: %s%s", code, out, bad)
	}
	if _, bad, code := runs(t, c, "login --json"); code != cli.ExitFailure || !strings.Contains(bad, `"code":"rate-limited"`) || !strings.Contains(bad, `"status":429`) {
		t.Errorf("--json: exit %d: %s", code, bad)
	}
}
