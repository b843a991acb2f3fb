// Package limiter bounds the requests in progress on a tunnel.
package limiter

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"relay"
	"relay/waits"
)

// Limiter bounds the requests in progress on a tunnel. Up to soft requests start at once, in order of
// arrival. A request that has waited for overflowAfter may start beyond soft, up to hard, so that a few
// hung requests do not block the others. The fewer requests end, the faster requests beyond soft are
// admitted. They are admitted step by step, because starting all waiting requests at once was slower.
type Limiter struct {
	soft, hard int

	mu       sync.Mutex
	used     int
	overflow int // number of used slots beyond soft
	ended    int // number of requests that ended in about the last overflowAfter
	waiting  []*waiter
	timer    *time.Timer // runs admitOverflow while requests wait
}

// Slot is the reservation for one channel in use: a slot of its tunnel and, beyond soft, also a slot of
// the owner of the alias and one of the whole process. Stuck requests of other tunnels therefore never
// use up the soft slots of a tunnel.
type Slot struct {
	tunnel     *Limiter
	owner, all *semaphore.Weighted
	overflow   bool // the slot is beyond soft
}

// waiter is a request that waits for its slot.
type waiter struct {
	slot     *Slot
	admitted chan struct{} // closed when the request gets the slot
	since    time.Time
}

// New makes a limiter for a tunnel that takes up to hard requests at once.
func New(hard int) *Limiter { return &Limiter{soft: MaxInUse, hard: hard} }

// Slot returns a slot, not acquired yet. The semaphores owner and all bound the slots beyond soft of the
// owner of the alias and of the whole process.
func (s *Limiter) Slot(owner, all *semaphore.Weighted) Slot {
	return Slot{tunnel: s, owner: owner, all: all}
}

// Bounds of the requests in progress, and of the slots beyond soft.
const (
	MaxInUse = 64 // requests of one tunnel that may run at once; more may run once they have waited for overflowAfter
	// RetryAfter is the time after which a caller may retry a request that got no slot.
	RetryAfter = 5 * time.Second

	manyRequests       = 2000                   // from this number of requests at one tunnel on, the wait for a slot ends after slotWait
	slotWait           = 5 * time.Second        // longest wait for a slot with manyRequests
	overflowAfter      = 800 * time.Millisecond // time that a request waits before it may run beyond MaxInUse: it does so within 1 s, unless no slot of the tunnel, of its owner or in all is left
	OverflowPerAccount = 4096                   // slots beyond MaxInUse, in use on all tunnels of one owner
	OverflowInAll      = 8192                   // slots beyond MaxInUse, in use on all tunnels

	overflowStep     = overflowAfter / 8 // pause between two runs of admitOverflow
	minOverflowBatch = 16                // slots given in one run, or an eighth of the used slots if that is more
	overflowPerStuck = 4                 // further slots given in one run, for each request in progress beyond the number of requests that ended in about the last overflowAfter
)

// Acquire takes a slot in order of arrival. It waits for at most maxWait (0 = no limit), and at most slotWait
// if manyRequests are in progress or waiting. If lost or cut is closed first, the error is ErrNotSent. At the
// end of the wait the error is local-timeout, or overloaded after slotWait.
func (p *Slot) Acquire(maxWait time.Duration, lost, cut <-chan struct{}) *relay.Error {
	s := p.tunnel
	p.overflow = false
	s.mu.Lock()
	if s.used < s.soft && len(s.waiting) == 0 {
		s.used++
		s.mu.Unlock()
		return nil
	}
	many := s.used+len(s.waiting) >= manyRequests && (maxWait <= 0 || maxWait > slotWait)
	if many {
		maxWait = slotWait
	}
	w := &waiter{slot: p, admitted: make(chan struct{}), since: time.Now()}
	s.waiting = append(s.waiting, w)
	if len(s.waiting) == 1 {
		s.ended = 0
		s.armTimer(overflowAfter)
	}
	s.mu.Unlock()
	var enough <-chan struct{}
	if maxWait > 0 {
		var stop func()
		enough, stop = waits.After(maxWait)
		defer stop()
	}
	err := relay.ErrNotSent
	select {
	case <-w.admitted:
		return nil
	case <-lost:
	case <-cut:
	case <-enough:
		err = relay.Errorf(relay.CodeLocalTimeout, "not sent: the local server did not respond to earlier requests within %v", maxWait)
		if many {
			err = &relay.Error{
				Code:       relay.CodeOverloaded,
				Detail:     "too many requests are in progress at this local server; send the request again when it has answered some of them",
				RetryAfter: RetryAfter,
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		// The request got its slot at the moment when its wait ended.
		return nil
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return err
}

// armTimer schedules admitOverflow if the limiter allows slots beyond soft. The caller holds mu.
func (s *Limiter) armTimer(after time.Duration) {
	switch {
	case s.hard <= s.soft:
	case s.timer == nil:
		s.timer = time.AfterFunc(after, s.admitOverflow)
	default:
		s.timer.Reset(after)
	}
}

// admitOverflow gives overflow slots to the requests that have waited for overflowAfter.
// One timer serves the whole queue, so that its cost does not grow with the number of
// waiters.
func (s *Limiter) admitOverflow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	hung := max(0, s.used-s.ended)
	s.ended -= s.ended * int(overflowStep) / int(overflowAfter)
	for more := max(minOverflowBatch, s.used/8) + overflowPerStuck*hung; len(s.waiting) > 0; more-- {
		first := s.waiting[0]
		left := overflowAfter - time.Since(first.since)
		// extra says that all soft slots are in use, so that the next slot is one beyond soft.
		extra := s.used-s.overflow >= s.soft
		if left > 0 || more <= 0 || s.used >= s.hard || extra && !first.slot.takeShared() {
			s.armTimer(max(left, overflowStep))
			return
		}
		s.wake(extra)
	}
}

// takeShared takes a slot of the owner and one of the process. It takes both or none, and reports whether it
// has taken them.
func (p *Slot) takeShared() bool {
	if !p.owner.TryAcquire(1) {
		return false
	}
	if !p.all.TryAcquire(1) {
		p.owner.Release(1)
		return false
	}
	return true
}

// wake gives a slot to the first waiter; overflow says that the slot is beyond soft. The caller holds mu.
func (s *Limiter) wake(overflow bool) {
	s.used++
	if overflow {
		s.overflow++
	}
	w := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	w.slot.overflow = overflow
	close(w.admitted)
}

// Release gives a slot back. The slot goes to the next waiter if fewer than soft slots are in use.
func (p *Slot) Release() {
	s := p.tunnel
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
	s.used--
	if p.overflow {
		p.owner.Release(1)
		p.all.Release(1)
		s.overflow--
	}
	if len(s.waiting) > 0 && s.used < s.soft {
		s.wake(false)
	}
}
