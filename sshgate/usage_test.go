package sshgate

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestUsage: a connection counts as unused only after the whole idle time without a use, in any order of
// uses.
func TestUsage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var u usage
		var calls atomic.Int64
		after := func(what string, d time.Duration, want int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := calls.Load(); got != want {
				t.Fatalf("%s: %d calls after %v, want %d", what, got, d, want)
			}
		}
		u.add(1) // a use before the login
		u.add(-1)
		u.begin(5*time.Second, func() { calls.Add(1) })
		after("begin", 4*time.Second, 0)
		u.add(1)
		after("used", time.Minute, 0)
		u.add(1)
		u.add(-1)
		after("used twice", time.Minute, 0)
		u.add(-1)
		after("unused for less", 4900*time.Millisecond, 0)
		after("unused", 200*time.Millisecond, 1)
		if u.none(true) {
			t.Error("a connection that is busy is unused")
		}
		after("busy", 1100*time.Millisecond, 2)
		if !u.none(false) {
			t.Error("a connection without use is used")
		}
		u.add(1)
		if u.none(false) || u.none(true) {
			t.Error("a connection in use is unused")
		}
		u.end()
		u.add(-1)
		u.begin(time.Second, func() { calls.Add(1) })
		after("end", time.Minute, 2)
		if u.none(false) {
			t.Error("a connection that has ended is to be closed")
		}
	})
}
