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
			if err := l.take("k"); (err == nil) != want {
				t.Errorf("call %d: %v", i, err)
			}
		}
		var e *relay.Error
		if err := l.take("k"); !errors.As(err, &e) || e.Code != relay.CodeRateLimited || e.RetryAfter != 30*time.Second {
			t.Errorf("refused with %v", err)
		}
		time.Sleep(30 * time.Second)
		if err := l.take("k"); err != nil {
			t.Errorf("after the time it named: %v", err)
		}
		if err := l.take("other"); err != nil {
			t.Errorf("another key: %v", err)
		}
	})
}

func TestLimiterForgetsTheLongestUnused(t *testing.T) {
	t.Parallel()
	l := newLimiter("x", Rate{N: 1, Per: time.Hour})
	for i := range maxKeys {
		_ = l.take(fmt.Sprint(i))
	}
	_ = l.take("0") // used again, so 1 is the longest unused
	_ = l.take("new")
	if len(l.byKey) != maxKeys || l.order.Len() != maxKeys {
		t.Errorf("%d keys, %d in order", len(l.byKey), l.order.Len())
	}
	if l.take("0") == nil || l.take("new") == nil {
		t.Error("a key in use was forgotten")
	}
	if l.take("1") != nil {
		t.Error("the longest unused key was kept")
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	l := newLimiter("x", Rate{})
	for range 1000 {
		if err := l.take("k"); err != nil {
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
		if got := clean(path); got != want {
			t.Errorf("%q: %t", path, got)
		}
	}
}
