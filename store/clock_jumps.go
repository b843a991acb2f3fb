package store

import "time"

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
