package db

import (
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// Clock is the wall clock, which users and time servers can set. Its arrival times keep their order
// even if the clock is set back.
type Clock struct {
	Wall func() time.Time
	base time.Time // start of the process, with a monotonic reading

	// Offset is the clock of Postgres minus that of this process, in nanoseconds. It is added to all
	// times, so that a queue that several nodes fill stays in order.
	Offset atomic.Int64

	mu   sync.Mutex
	last time.Time     // latest arrival time returned
	at   time.Duration // monotonic time at which last was returned
}

func (c *Clock) start(wall func() time.Time) {
	if wall == nil {
		wall = time.Now
	}
	c.Wall, c.base = wall, time.Now()
}

// Now returns the wall-clock time, corrected to the clock of Postgres.
func (c *Clock) Now() time.Time { return c.corrected(c.Wall()) }

// corrected returns the time t of this process, corrected to the clock of Postgres.
func (c *Clock) corrected(t time.Time) time.Time { return t.Add(time.Duration(c.Offset.Load())) }

// Now returns the wall-clock time, corrected to the clock of Postgres.
func (s *DB) Now() time.Time { return s.Clock.Now() }

// Measure corrects Offset if a measured offset differs from it by more than the error of the measurement. The
// parameters describe one statement: when it began by the clock of this process (wall), how long it took, and
// the time of Postgres that it returned (database). Postgres read that time at some moment during the
// statement, so the error is at most half of took.
func (c *Clock) Measure(database, wall time.Time, took time.Duration) {
	measured := database.Sub(wall.Round(0)) - took/2
	if off := measured - time.Duration(c.Offset.Load()); off.Abs() > took/2+time.Millisecond {
		c.Offset.Store(int64(measured))
	}
}

// Arrival returns the time t of this process, corrected to the clock of Postgres. It moves t if
// necessary, so that later events never get earlier times, because queues are ordered by arrival.
// After the clock is set back, times advance at half speed from the latest one until the wall clock
// has caught up.
func (c *Clock) Arrival(t time.Time) time.Time {
	mono := time.Since(c.base)
	if t != t.Round(0) { // t has a monotonic reading, which Round(0) drops
		mono = t.Sub(c.base)
	}
	t = c.corrected(t)
	wall := t.Round(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := mono - c.at
	if passed < 0 { // the event arrived before the latest one but is stored after it
		if wall.After(c.last) {
			return c.last
		}
		if c.last.Sub(wall) > 2*-passed+setBackTolerance {
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

// Latest returns the time for an event that arrives now. No event that has already arrived has a later
// time, even after the clock was set back.
func (c *Clock) Latest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, least := c.Now(), c.last.Add((time.Since(c.base)-c.at)/2)
	if !c.last.IsZero() && now.Before(least) {
		return least
	}
	return now
}

// setBackTolerance is the time by which the wall clock may be behind the monotonic clock before it
// counts as set back.
const setBackTolerance = time.Second

// StartAfter makes every later arrival time follow t, if t is ahead of the wall clock.
func (c *Clock) StartAfter(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.last) && t.After(c.Now()) {
		c.last, c.at = t, time.Since(c.base)
	}
}

// Adjust corrects the times of an event that has just arrived at this process. If the time of an event has no
// monotonic reading, the event did not arrive here just now, and its times stay unchanged.
func (c *Clock) Adjust(e *relay.Event) {
	t := e.ReceivedAt
	if t == t.Round(0) {
		return
	}
	moved := c.Arrival(t)
	if moved.Equal(t) {
		return
	}
	e.ReceivedAt, e.LastReceivedAt = moved, moved
	if len(e.Attempts) > 0 && e.Attempts[0].ReceivedAt.Equal(t) {
		e.Attempts[0].ReceivedAt = moved
	}
}

// Correct corrects the start and end times of an attempt of this process to the clock of Postgres, as
// Adjust does for its event. A time without a monotonic reading was read from the store, and stays unchanged.
func (c *Clock) Correct(a *relay.Attempt) {
	for _, t := range []*time.Time{&a.StartedAt, &a.EndedAt} {
		if *t != t.Round(0) {
			*t = c.corrected(*t).Round(0)
		}
	}
}
