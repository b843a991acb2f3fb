package store

import (
	"testing"
	"testing/synctest"
	"time"
)

// What comes later never has an earlier time, whatever happens to the clock on the
// wall; without such a thing times stay as they are.
func TestArrivalsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offset := time.Duration(0)
		var c clock
		c.start(func() time.Time { return time.Now().Round(0).Add(offset) })
		var last time.Time
		come := func() time.Time {
			t.Helper()
			time.Sleep(time.Second)
			at := c.arrival(c.now())
			if !at.After(last) {
				t.Errorf("%v does not come after %v", at, last)
			}
			last = at
			return at
		}
		for range 3 {
			if at := come(); !at.Equal(c.now()) {
				t.Errorf("%v was moved", at.Sub(c.now()))
			}
		}
		offset = -time.Hour
		come()
		for range 3600 {
			come()
		}
		if ahead := last.Sub(c.now()); ahead < 29*time.Minute || ahead > 31*time.Minute {
			t.Errorf("after an hour still %v ahead", ahead)
		}
		time.Sleep(2 * time.Hour)
		if at := come(); !at.Equal(c.now()) {
			t.Errorf("never caught up: %v", at.Sub(c.now()))
		}
		offset = time.Hour
		if at := come(); !at.Equal(c.now()) {
			t.Error("not set forward")
		}
		c.startAfter(c.now().Add(time.Hour))
		if at := come(); at.Before(c.now().Add(59 * time.Minute)) {
			t.Errorf("comes before what waits: %v", at)
		}
	})
}

// One that came first and is handed over last keeps its own time.
func TestArrivalsOutOfOrder(t *testing.T) {
	var c clock
	c.start(nil)
	first := time.Now() // both with the monotonic clock
	second := first.Add(time.Minute)
	if at := c.arrival(second); !at.Equal(second) {
		t.Error(at)
	}
	if at := c.arrival(first); !at.Equal(first) {
		t.Errorf("moved by %v", at.Sub(first))
	}
}

// A clock that is set far ahead is not believed for a while, one that is put right
// again at once.
func TestLeapsAreDoubted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l clockJumps
		offset := time.Duration(0)
		doubtful := func(want bool) {
			t.Helper()
			time.Sleep(time.Second)
			if got := l.recentJump(time.Now().Round(0).Add(offset)); got != want {
				t.Errorf("doubtful is %v", got)
			}
		}
		doubtful(false)
		doubtful(false)
		offset = time.Hour
		doubtful(true)
		doubtful(true)
		offset = 0
		doubtful(false)
		offset = -time.Hour
		doubtful(false)
		offset = time.Hour
		doubtful(true)
		time.Sleep(jumpWait)
		doubtful(false)
	})
}
