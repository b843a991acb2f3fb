package delivery

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"relay"
)

// limiter bounds the requests in flight on a tunnel. Up to soft requests start at once,
// in order of arrival. A request that has waited for overflowAfter may start beyond
// soft, up to hard, so that a few hung requests do not block the others. Overflow is
// admitted gradually, and faster the fewer requests end: admitting all that wait at once
// was slower.
type limiter struct {
	soft, hard int

	mu       sync.Mutex
	used     int
	overflow int // how many of used are beyond soft
	ended    int // requests that ended in about the last overflowAfter
	waiting  []*waiter
	timer    *time.Timer // runs admitOverflow while requests wait
}

// waiter is a request that waits for a slot.
type waiter struct {
	admitted chan struct{} // closed when the waiter gets a slot
	since    time.Time
	shared   []*semaphore.Weighted // an overflow slot also takes one of each of these
	overflow bool                  // the slot is beyond soft
}

// Bounds of overflow.
const (
	overflowStep     = overflowAfter / 8 // time between two runs of admitOverflow
	minOverflowBatch = 16                // slots given in one run, or an eighth of those in use if that is more
	overflowPerStuck = 4                 // slots given in addition for each request in flight more than have ended
)

func newLimiter(soft, hard int) *limiter { return &limiter{soft: soft, hard: hard} }

// try takes a slot below soft if there is one and no request waits for it.
func (s *limiter) try() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take()
}

// take does what try does. The caller holds mu.
func (s *limiter) take() bool {
	if s.used >= s.soft || len(s.waiting) > 0 {
		return false
	}
	s.used++
	return true
}

// Results of wait.
type wait uint8

const (
	waitOver       wait = iota // the request has its slot
	waitLost                   // gone or cut was closed first
	waitLate                   // maxWait has passed
	waitOverloaded             // slotWait has passed, with manyRequests in flight or waiting
)

// wait takes a slot in order of arrival, and reports whether it is an overflow slot. A
// maxWait of 0 means no limit.
func (s *limiter) wait(maxWait time.Duration, gone, cut <-chan struct{}, shared ...*semaphore.Weighted) (overflow bool, result wait) {
	s.mu.Lock()
	if s.take() {
		s.mu.Unlock()
		return false, waitOver
	}
	result = waitLate
	if s.used+len(s.waiting) >= manyRequests && (maxWait <= 0 || maxWait > slotWait) {
		maxWait, result = slotWait, waitOverloaded
	}
	t := &waiter{admitted: make(chan struct{}), since: time.Now(), shared: shared}
	s.waiting = append(s.waiting, t)
	if len(s.waiting) == 1 {
		s.ended = 0
		s.armTimer(overflowAfter)
	}
	s.mu.Unlock()
	var enough <-chan time.Time
	if maxWait > 0 {
		late := time.NewTimer(maxWait)
		defer late.Stop()
		enough = late.C
	}
	select {
	case <-t.admitted:
		return t.overflow, waitOver
	case <-gone:
		result = waitLost
	case <-cut:
		result = waitLost
	case <-enough:
	}
	if s.cancelWait(t) {
		return false, result
	}
	return t.overflow, waitOver
}

// armTimer schedules admitOverflow if there can be overflow. The caller holds mu.
func (s *limiter) armTimer(after time.Duration) {
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
func (s *limiter) admitOverflow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	hung := max(0, s.used-s.ended)
	s.ended -= s.ended * int(overflowStep) / int(overflowAfter)
	for more := max(minOverflowBatch, s.used/8) + overflowPerStuck*hung; len(s.waiting) > 0; more-- {
		first := s.waiting[0]
		left := overflowAfter - time.Since(first.since)
		extra := s.used-s.overflow >= s.soft // false: requests below soft have ended, those beyond have not
		if left > 0 || more <= 0 || s.used >= s.hard || extra && !takeAll(first.shared) {
			s.armTimer(max(left, overflowStep))
			return
		}
		s.wake(extra)
	}
}

// takeAll takes one of each semaphore. If one of them has none, it takes nothing at all.
func takeAll(shared []*semaphore.Weighted) bool {
	for i, s := range shared {
		if !s.TryAcquire(1) {
			for _, had := range shared[:i] {
				had.Release(1)
			}
			return false
		}
	}
	return true
}

// wake gives a slot to the first waiter. The caller holds mu.
func (s *limiter) wake(overflow bool) {
	s.used++
	if overflow {
		s.overflow++
	}
	t := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	t.overflow = overflow
	close(t.admitted)
}

// cancelWait removes a waiter. It returns false if the waiter got a slot meanwhile.
func (s *limiter) cancelWait(t *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, t)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	return i >= 0
}

// release returns a slot, and gives it to the next waiter if fewer than soft are in use.
func (s *limiter) release(overflow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
	s.used--
	if overflow {
		s.overflow--
	}
	if len(s.waiting) > 0 && s.used < s.soft {
		s.wake(false)
	}
}

// channelSlot is what one channel in use takes: a slot of its tunnel and, if that one is
// beyond soft, a slot of the owner of the alias and one of the whole process. So stuck
// requests of other tunnels never use up the soft slots of a tunnel.
type channelSlot struct {
	tunnel     *limiter
	owner, all *semaphore.Weighted
	overflow   bool
}

// acquire waits for a slot, for maxWait at most; 0 means no limit. With manyRequests in
// flight or waiting it waits for slotWait at most.
func (p *channelSlot) acquire(maxWait time.Duration, lost, cut <-chan struct{}) *relay.Error {
	if p.overflow = false; p.tunnel.try() {
		return nil
	}
	var result wait
	p.overflow, result = p.tunnel.wait(maxWait, lost, cut, p.owner, p.all)
	switch result {
	case waitLost:
		return relay.ErrNotSent
	case waitLate:
		return relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer the requests before this one within %v, so that it was not sent", maxWait)
	case waitOverloaded:
		return &relay.Error{
			Code:       relay.CodeOverloaded,
			Detail:     "too many requests are under way to this local server; it has to answer some first",
			RetryAfter: retryAfter,
		}
	}
	return nil
}

func (p *channelSlot) release() {
	if p.overflow {
		p.owner.Release(1)
		p.all.Release(1)
	}
	p.tunnel.release(p.overflow)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
