// Package waits has time limits for what other programs do: a caller, a client, a local server, the database.
//
// If this process is stopped for longer than such a limit, because its machine was suspended or its container
// was frozen, the limit is over as soon as the process continues. The other program may have acted in time, but
// the system still holds what it has sent. If a limit of this package is noticed late, it therefore does not
// end the wait at once, but first gives the process CatchUp to read what has arrived.
package waits

import (
	"context"
	"time"
)

const (
	// CatchUp is the time that a limit which was noticed late leaves for reading what has arrived.
	CatchUp = time.Second
	// lateAfter is the time after which a limit counts as noticed late. A timer of a running process is late
	// by less, also on an overloaded machine or in a container that has used up its share of CPU time.
	lateAfter = 200 * time.Millisecond
)

// now returns the time at which a limit is noticed; only a test changes it.
var now = time.Now

// IsLate reports whether a limit that was over at the time limit is noticed late. It is never true for the zero
// time, which means no limit.
func IsLate(limit, noticed time.Time) bool {
	return !limit.IsZero() && noticed.Sub(limit) >= lateAfter
}

// After returns a channel that is closed once d has passed, and a function that frees its timer. Who selects
// between the channel and an event has to check the event once more after it, because select chooses at random
// between cases that are ready.
func After(d time.Duration) (over <-chan struct{}, stop func()) {
	done := make(chan struct{})
	t := start(d, func() { close(done) })
	return done, func() { t.Stop() }
}

// WithTimeout returns a context that ends once d has passed. Its error is then context.DeadlineExceeded.
func WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	t := start(d, func() { end(context.DeadlineExceeded) })
	return limited{ctx}, func() {
		t.Stop()
		end(context.Canceled)
	}
}

// limited is a context whose error is the cause of its end.
type limited struct{ context.Context }

// Err implements context.Context.
func (l limited) Err() error {
	if l.Context.Err() == nil {
		return nil
	}
	return context.Cause(l.Context)
}

// start calls over once d has passed. If it notices this late, it calls over CatchUp later, whether or not it
// notices that late again: a process that is always late must not postpone a limit for ever.
func start(d time.Duration, over func()) *time.Timer {
	var t *time.Timer
	limit, late := time.Now().Add(d), false
	t = time.AfterFunc(time.Hour, func() {
		if !late && IsLate(limit, now()) {
			late = true
			t.Reset(CatchUp)
			return
		}
		over()
	})
	// The function reads t, so the timer may start only after t is set.
	t.Reset(d)
	return t
}
