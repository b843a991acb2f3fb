package store

import "time"

// clockJumps detects changes of the wall clock.
type clockJumps struct {
	wall        time.Time // time of the last check, without a monotonic clock reading
	mono, until time.Time // time of the last check, and time until which the clock is doubted; both with a monotonic clock reading
}

// begin checks the wall clock at a start. The clock is doubted if it is ahead of seen, the time when the store
// was last used (zero = unknown), by more than tolerance, or if the clock of Postgres is ahead of this machine's
// by more than maxClockDrift; the parameter database is that difference. begin returns the larger of the two
// differences, or 0 if the clock is trusted.
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
	maxClockDrift = time.Minute      // the wall clock has jumped if its reading changed by this much more, or less, than that of the monotonic clock
	jumpWait      = 10 * time.Minute // a clock that jumped forward is doubted for this time
)

// recentJump reports whether the clock jumped forward within the last jumpWait, or the machine was suspended.
// Nothing expires while it returns true, so that no events are deleted because of a clock that was set ahead
// by mistake.
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
