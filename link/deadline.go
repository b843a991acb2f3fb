package link

import (
	"sync"
	"time"
)

// deadline is a deadline of reads or of writes. The zero value is no deadline.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	at     time.Time     // the time of the deadline; zero = none
	passed chan struct{} // closed when the deadline has passed; nil until a caller of wait needs it
	closed bool          // passed is closed
}

// set sets the deadline, also for calls that are already waiting; the zero time means none.
func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	if d.closed {
		d.passed, d.closed = nil, false
	}
	var left time.Duration
	if !at.IsZero() {
		left = time.Until(at)
	}
	switch {
	case at.IsZero():
		if d.timer != nil {
			d.timer.Stop()
		}
	case left <= 0:
		d.pass()
	case d.timer == nil:
		d.timer = time.AfterFunc(left, d.fired)
	default:
		d.timer.Reset(left)
	}
}

// fired is called by the timer. If set has moved the deadline while fired waited for mu, fired does
// nothing, because set has also moved or stopped the timer.
func (d *deadline) fired() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed && !d.at.IsZero() && time.Until(d.at) <= 0 {
		d.pass()
	}
}

// pass notes that the deadline has passed; mu is held.
func (d *deadline) pass() {
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	d.closed = true
	close(d.passed)
}

// wait returns a channel that is closed when the deadline has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	return d.passed
}

// stop stops the timer.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
}

// over reports whether a channel is closed.
func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
