package api

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

func TestLimiterRefills(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter("x", Rate{N: 2, Per: time.Minute})
		for i, want := range []bool{true, true, false, false} {
			if err := l.allow("k"); (err == nil) != want {
				t.Errorf("call %d: %v", i, err)
			}
		}
		var e *relay.Error
		if err := l.allow("k"); !errors.As(err, &e) || e.Code != relay.CodeRateLimited || e.RetryAfter != 30*time.Second {
			t.Errorf("refused with %v", err)
		}
		time.Sleep(30 * time.Second)
		if err := l.allow("k"); err != nil {
			t.Errorf("after the time it named: %v", err)
		}
		if err := l.allow("other"); err != nil {
			t.Errorf("another key: %v", err)
		}
	})
}

func TestLimiterForgetsTheLongestUnused(t *testing.T) {
	t.Parallel()
	l := newLimiter("x", Rate{N: 1, Per: time.Hour})
	for i := range maxKeys {
		_ = l.allow(fmt.Sprint(i))
	}
	_ = l.allow("0") // key 0 is used again, so key 1 is now the least recently used
	_ = l.allow("new")
	if got := l.buckets.Len(); got != maxKeys {
		t.Errorf("%d keys", got)
	}
	if l.allow("0") == nil || l.allow("new") == nil {
		t.Error("a key in use was forgotten")
	}
	if l.allow("1") != nil {
		t.Error("the longest unused key was kept")
	}
}

// TestGuessesAreSlowedAndNeighboursAreNot: after too many wrong secrets from a source, its secrets are refused
// without a look-up, except those that were right earlier.
func TestGuessesAreSlowedAndNeighboursAreNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewLimits(Rate{}, Rate{})
		const here = "203.0.113.9:1000"
		asked := 0
		lookUp := func(remote, secret string, found error) error {
			return l.LookUpSecret(remote, secret, func() error { asked++; return found })
		}
		if err := lookUp(here, "good", nil); err != nil {
			t.Fatal(err)
		}
		for range sourceRate.N {
			if err := lookUp(here, "bad", relay.ErrNotFound); err != relay.ErrNotFound {
				t.Fatal(err)
			}
		}
		asked = 0
		var e *relay.Error
		if err := lookUp("203.0.113.9:2000", "other", nil); asked != 0 || !errors.As(err, &e) || e.Code != relay.CodeRateLimited || e.RetryAfter <= 0 {
			t.Errorf("another port of the source: %v", err)
		}
		for what, err := range map[string]error{
			"a good secret from there": lookUp(here, "good", nil), "another source": lookUp("203.0.113.10:1000", "new", nil),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		time.Sleep(e.RetryAfter)
		if err := lookUp(here, "other", nil); err != nil {
			t.Errorf("after the time it named: %v", err)
		}
		if s := l.Stats(); s.Refused["source"] != 1 || s.Keys["source"] != 1 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestSources(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"203.0.113.9:1": "203.0.113.9/32", "[::ffff:203.0.113.9]:1": "203.0.113.9/32", "[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "": "invalid Prefix", "@": "invalid Prefix",
	} {
		if got := sourceKey(remote); got != want {
			t.Errorf("%q: %s, want %s", remote, got, want)
		}
	}
}

func TestConcurrencyLimits(t *testing.T) {
	t.Parallel()
	p := newConcurrencyLimiter("x", maxOpenPerAccount)
	var first func()
	for i := range maxOpenPerAccount {
		leave, err := p.acquire("a")
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = leave
		}
	}
	if _, err := p.acquire("a"); err == nil {
		t.Error("one too many")
	}
	if _, err := p.acquire("b"); err != nil {
		t.Errorf("another account: %v", err)
	}
	first()
	first() // a second call changes nothing
	if _, err := p.acquire("a"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	if p.open() != maxOpenPerAccount+1 || p.count.Load() != 1 {
		t.Errorf("%d open, %d refused", p.open(), p.count.Load())
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	l := newLimiter("x", Rate{})
	for range 1000 {
		if err := l.allow("k"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCleanPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/": true, "/api/v1/me": true, "/api/v1/me/": true, "/api/...": true, "/api/.hidden": true,
		"": false, "api": false, "//": false, "/api//": false, "/api/.": false, "/api/..": false, "/api/../x": false, "/api/x//y": false,
	} {
		if got := isCleanPath(path); got != want {
			t.Errorf("%q: %t", path, got)
		}
	}
}
