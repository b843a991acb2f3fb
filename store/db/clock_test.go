package db

import (
	"testing"
	"testing/synctest"
	"time"
)

// Later arrivals never get an earlier time, whatever happens to the wall clock; without clock jumps
// times stay unchanged.
func TestArrivalsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offset := time.Duration(0)
		var c Clock
		c.start(func() time.Time { return time.Now().Round(0).Add(offset) })
		var last time.Time
		come := func() time.Time {
			t.Helper()
			time.Sleep(time.Second)
			at := c.Arrival(c.Now())
			if !at.After(last) {
				t.Errorf("%v does not come after %v", at, last)
			}
			last = at
			return at
		}
		for range 3 {
			if at := come(); !at.Equal(c.Now()) {
				t.Errorf("%v was moved", at.Sub(c.Now()))
			}
		}
		offset = -time.Hour
		come()
		for range 3600 {
			come()
		}
		if ahead := last.Sub(c.Now()); ahead < 29*time.Minute || ahead > 31*time.Minute {
			t.Errorf("after an hour still %v ahead", ahead)
		}
		time.Sleep(2 * time.Hour)
		if at := come(); !at.Equal(c.Now()) {
			t.Errorf("never caught up: %v", at.Sub(c.Now()))
		}
		offset = time.Hour
		if at := come(); !at.Equal(c.Now()) {
			t.Error("not set forward")
		}
		c.StartAfter(c.Now().Add(time.Hour))
		if at := come(); at.Before(c.Now().Add(59 * time.Minute)) {
			t.Errorf("comes before what waits: %v", at)
		}
	})
}

// An event that arrived first and is stored last keeps its own time.
func TestArrivalsOutOfOrder(t *testing.T) {
	var c Clock
	c.start(nil)
	first := time.Now() // first and second have a monotonic reading
	second := first.Add(time.Minute)
	if at := c.Arrival(second); !at.Equal(second) {
		t.Error(at)
	}
	if at := c.Arrival(first); !at.Equal(first) {
		t.Errorf("moved by %v", at.Sub(first))
	}
}
