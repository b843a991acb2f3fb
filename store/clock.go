package store

import (
	"sync"
	"time"

	"relay"
)

// clock is the clock on the wall, which people and time servers set, and an order of
// arrival that does not depend on it.
type clock struct {
	wall func() time.Time
	base time.Time // the start, with the monotonic clock

	mu   sync.Mutex
	last time.Time     // latest arrival given
	at   time.Duration // when that was, on the monotonic clock
}

func (c *clock) start(wall func() time.Time) {
	if wall == nil {
		wall = time.Now
	}
	c.wall, c.base = wall, time.Now()
}

// now is the time on the wall.
func (c *clock) now() time.Time { return c.wall() }

// now is the time on the wall.
func (s *Store) now() time.Time { return s.clock.now() }

// since is the monotonic clock at t, if t has it, else at present.
func (c *clock) since(t time.Time) time.Duration {
	if t != t.Round(0) { // Round(0) drops it
		return t.Sub(c.base)
	}
	return time.Since(c.base)
}

// arrival is the time at which something came: that on the wall, unless the clock was
// set back. Then arrivals follow the latest one of before, at half the pace, until
// the wall has caught up: what came later never has an earlier time, and queues go by
// it.
func (c *clock) arrival(t time.Time) time.Time {
	mono, wall := c.since(t), t.Round(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := mono - c.at
	if passed < 0 { // it came before the latest one, and is handed over after it
		if wall.After(c.last) {
			return c.last
		}
		if c.last.Sub(wall) > 2*-passed+setBack {
			return c.last.Add(passed)
		}
		return t
	}
	least := c.last.Add(passed / 2)
	if !c.last.IsZero() && wall.Before(least) {
		c.last, c.at = least, mono
		return least
	}
	c.last, c.at = wall, mono
	return t
}

// setBack is how much earlier a time may be than the monotonic clock says before the
// clock on the wall counts as set back.
const setBack = time.Second

// follow has every later arrival come behind t, as far as t lies ahead of the wall.
func (c *clock) follow(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.last) && t.After(c.wall()) {
		c.last, c.at = t, time.Since(c.base)
	}
}

// settle moves the times of an event that comes from a caller. One whose time has no
// monotonic clock comes from elsewhere, and stays as it is.
func (c *clock) settle(e *relay.Event) {
	t := e.ReceivedAt
	if t == t.Round(0) {
		return
	}
	moved := c.arrival(t)
	if moved.Equal(t) {
		return
	}
	e.ReceivedAt, e.LastReceivedAt = moved, moved
	if len(e.Attempts) > 0 && e.Attempts[0].ReceivedAt.Equal(t) {
		e.Attempts[0].ReceivedAt = moved
	}
}

// leaps notices when the clock on the wall is set.
type leaps struct {
	wall        time.Time
	mono, until time.Time // these have the monotonic clock
}

const (
	leap     = time.Minute      // ahead of the monotonic clock: more is no drift
	leapWait = 10 * time.Minute // before what the clock says now is believed
)

// leaps begins to watch the clock.
func (s *Store) leaps() leaps {
	var l leaps
	l.doubtful(s.now())
	return l
}

// doubtful tells whether the clock was set forward by much a short while ago, or the
// machine slept: a mistake that is put right in that time shall cost nobody an event.
func (l *leaps) doubtful(wall time.Time) bool {
	mono := time.Now()
	if !l.wall.IsZero() {
		ahead := wall.Round(0).Sub(l.wall) - mono.Sub(l.mono)
		switch {
		case ahead > leap:
			l.until = mono.Add(leapWait)
		case ahead < -leap:
			l.until = time.Time{} // it was put right
		}
	}
	l.wall, l.mono = wall.Round(0), mono
	return mono.Before(l.until)
}
