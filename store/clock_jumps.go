package store

import "time"

// clockJumps detects changes of the wall clock.
type clockJumps struct {
	wall        time.Time
	mono, until time.Time // both with their monotonic reading
}

// begin checks the clock at a start. seen is the latest time that the store has noted, zero if there
// is none. database is the time by which the clock of Postgres is ahead of this machine's. If the
// clock is ahead of seen by more than tolerance, or database exceeds maxClockDrift, begin doubts the
// clock as after a jump and returns the time by which it is ahead.
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
	maxClockDrift = time.Minute      // the clock jumped if it is ahead of the monotonic clock by more
	jumpWait      = 10 * time.Minute // how long a clock that jumped forward is not trusted
)

// recentJump reports whether the clock jumped forward within the last jumpWait, or the machine was
// suspended. During that time nothing expires: if the clock was set wrong by mistake and is corrected,
// no event was deleted.
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
