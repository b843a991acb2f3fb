package store

import (
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// clock is the wall clock, which people and time servers can set, and arrival times that
// keep their order when it is set back.
type clock struct {
	wall func() time.Time
	base time.Time // start of the process, with the monotonic clock

	// offset is the clock of Postgres minus that of this process, in nanoseconds. It is
	// added to all times, so that the queues that several nodes fill stay in order.
	offset atomic.Int64

	mu   sync.Mutex
	last time.Time     // latest arrival time returned
	at   time.Duration // monotonic time at which last was returned
}

func (c *clock) start(wall func() time.Time) {
	if wall == nil {
		wall = time.Now
	}
	c.wall, c.base = wall, time.Now()
}

// now is the wall-clock time, corrected by that of Postgres.
func (c *clock) now() time.Time { return c.corrected(c.wall()) }

// corrected is the time t of this process by the clock of Postgres.
func (c *clock) corrected(t time.Time) time.Time { return t.Add(time.Duration(c.offset.Load())) }

// now is the wall-clock time, corrected by that of Postgres.
func (s *Store) now() time.Time { return s.clock.now() }

// measure corrects the offset when the measured one differs from it by more than what is
// uncertain: the database read its clock at some time of the took that the statement took.
func (c *clock) measure(database, wall time.Time, took time.Duration) {
	measured := database.Sub(wall.Round(0)) - took/2
	if off := measured - time.Duration(c.offset.Load()); off.Abs() > took/2+time.Millisecond {
		c.offset.Store(int64(measured))
	}
}

// arrival returns the time t of this process by the clock of Postgres, adjusted so that later
// events never get earlier times: queues are ordered by it. After the clock is set back, times
// advance at half speed from the latest one until the wall clock has caught up.
func (c *clock) arrival(t time.Time) time.Time {
	mono := time.Since(c.base)
	if t != t.Round(0) { // Round(0) drops the monotonic reading
		mono = t.Sub(c.base)
	}
	t = c.corrected(t)
	wall := t.Round(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := mono - c.at
	if passed < 0 { // this event arrived before the latest one and is stored after it
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

// latest is the time of an event that arrives now. No event that has arrived has a later one, also
// after the clock was set back.
func (c *clock) latest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, least := c.now(), c.last.Add((time.Since(c.base)-c.at)/2)
	if !c.last.IsZero() && now.Before(least) {
		return least
	}
	return now
}

// setBackTolerance is how far the wall clock may be behind the monotonic clock before it
// counts as set back.
const setBackTolerance = time.Second

// startAfter makes every later arrival time follow t, if t is ahead of the wall clock.
func (c *clock) startAfter(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.last) && t.After(c.now()) {
		c.last, c.at = t, time.Since(c.base)
	}
}

// adjust corrects the times of an event that a caller sent. An event whose time has no
// monotonic reading did not arrive here just now, and keeps its times.
func (c *clock) adjust(e *relay.Event) {
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

// correct corrects the times at which an attempt of this process started and ended by the clock
// of Postgres, as adjust does when its event arrives. A time without a monotonic reading was read
// from the store.
func (c *clock) correct(a *relay.Attempt) {
	for _, t := range []*time.Time{&a.StartedAt, &a.EndedAt} {
		if *t != t.Round(0) {
			*t = c.corrected(*t).Round(0)
		}
	}
}

// clockJumps detects that the wall clock was set.
type clockJumps struct {
	wall        time.Time
	mono, until time.Time // both with the monotonic reading
}

// begin judges the clock at a start: seen is the latest time that the store has noted, zero where
// it has none, and database is how far the clock of Postgres is ahead of that of this machine. Where
// the clock is further ahead of the first than tolerance, or of the other than a clock drifts, it is
// doubted like one that has just jumped, and begin returns by how much it is ahead.
func (l *clockJumps) begin(wall, seen time.Time, database, tolerance time.Duration) (ahead time.Duration) {
	l.recentJump(wall)
	if !seen.IsZero() {
		ahead = wall.Round(0).Sub(seen)
	}
	if ahead <= tolerance && database <= maxClockDrift {
		return 0
	}
	l.until = l.mono.Add(jumpWait)
	return max(ahead, database)
}

const (
	maxClockDrift = time.Minute      // ahead of the monotonic clock; more is a jump and not drift
	jumpWait      = 10 * time.Minute // before a clock that jumped forward is trusted
)

// recentJump reports whether the clock jumped forward within the last jumpWait, or the
// machine was suspended. Nothing is expired in that time, so that a clock that was set
// wrong by mistake and is corrected deletes no event.
func (l *clockJumps) recentJump(wall time.Time) bool {
	mono := time.Now()
	if !l.wall.IsZero() {
		ahead := wall.Round(0).Sub(l.wall) - mono.Sub(l.mono)
		switch {
		case ahead > maxClockDrift:
			l.until = mono.Add(jumpWait)
		case ahead < -maxClockDrift:
			l.until = time.Time{} // the clock was corrected
		}
	}
	l.wall, l.mono = wall.Round(0), mono
	return mono.Before(l.until)
}
