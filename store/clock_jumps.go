package store

import "time"

// clockJumps detects changes of the wall clock.
type clockJumps struct {
	wall        time.Time // time of the last check, without a monotonic clock reading
	mono, until time.Time // time of the last check, and time until which the clock is doubted; both with a monotonic clock reading
}

// begin checks the wall clock at a start. It returns 0 if the clock is trusted, and otherwise the time by
// which the clock is ahead. seen is the latest time that the store has noted, zero if there is none. database
// is the time by which the clock of Postgres is ahead of this machine's. The clock is doubted if it is ahead
// of seen by more than tolerance, or if database exceeds maxClockDrift.
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
	maxClockDrift = time.Minute      // a wall clock that moves by this much more than the monotonic clock has jumped
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
