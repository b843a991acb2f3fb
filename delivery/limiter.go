package delivery

import (
	"slices"
	"sync"
	"time"

	"relay"
)

// limiter bounds the requests in flight on a tunnel. Up to soft requests start at once,
// in order of arrival. A request that has waited for overflowAfter may start beyond
// soft, up to hard, so that a few hung requests do not block the others. Overflow is
// admitted gradually, and faster the more requests are stuck: admitting all that
// wait at once was slower.
type limiter struct {
	soft, hard int
	crowdSize  int // requests in flight or waiting from which on a wait ends after slotWait

	mu       sync.Mutex
	used     int
	overflow int // how many of used are beyond soft
	ages     ageCounter
	waiting  []*waiter
	timer    *time.Timer // runs admitOverflow while requests wait
}

// waiter is a request that waits for a slot.
type waiter struct {
	admitted chan struct{} // closed when the waiter gets a slot
	since    time.Time
	shared   []*limiter // an overflow slot also takes one of each of these
	slot     slot
}

// slot is what one request in flight uses of a limiter.
type slot struct {
	at       int64 // the tick of ageCounter in which the request got it
	overflow bool  // it is beyond soft, and uses one slot of each shared limiter, too
}

// Bounds of overflow.
const (
	overflowStep     = overflowAfter / 8 // time between two runs of admitOverflow
	minOverflowBatch = 16                // slots given in one run, or an eighth of those in use if that is more
	overflowPerStuck = 4                 // slots given in addition for each stuck request
)

func newLimiter(soft, hard, crowdSize int) *limiter {
	return &limiter{soft: soft, hard: hard, crowdSize: crowdSize, ages: ageCounter{start: time.Now()}}
}

// try takes a slot below soft if there is one and no request waits for it.
func (s *limiter) try() (slot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take()
}

// take does what try does. The caller holds mu.
func (s *limiter) take() (slot, bool) {
	if s.used >= s.soft || len(s.waiting) > 0 {
		return slot{}, false
	}
	return s.give(false), true
}

// give counts a slot in. The caller holds mu.
func (s *limiter) give(extra bool) slot {
	s.used++
	if extra {
		s.overflow++
	}
	return slot{s.ages.in(time.Now()), extra}
}

// Results of wait.
type wait uint8

const (
	waitOver    wait = iota // the request has its slot
	waitLost                // gone or cut was closed first
	waitLate                // maxWait has passed
	waitCrowded             // slotWait has passed, with crowdSize requests in flight or waiting
)

// wait takes a slot in order of arrival. A maxWait of 0 means no limit.
func (s *limiter) wait(maxWait time.Duration, gone, cut <-chan struct{}, shared ...*limiter) (slot, wait) {
	s.mu.Lock()
	if p, ok := s.take(); ok {
		s.mu.Unlock()
		return p, waitOver
	}
	end := waitLate
	if s.used+len(s.waiting) >= s.crowdSize && (maxWait <= 0 || maxWait > slotWait) {
		maxWait, end = slotWait, waitCrowded
	}
	t := &waiter{admitted: make(chan struct{}), since: time.Now(), shared: shared}
	s.waiting = append(s.waiting, t)
	if len(s.waiting) == 1 {
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
		return t.slot, waitOver
	case <-gone:
		end = waitLost
	case <-cut:
		end = waitLost
	case <-enough:
	}
	if s.cancelWait(t) {
		return slot{}, end
	}
	return t.slot, waitOver
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
	hung := s.ages.stuck(time.Now())
	for more := max(minOverflowBatch, s.used/8) + overflowPerStuck*hung; len(s.waiting) > 0; more-- {
		first := s.waiting[0]
		left := overflowAfter - time.Since(first.since)
		extra := s.used-s.overflow >= s.soft // false: requests below soft have ended, those beyond have not
		if left > 0 || more <= 0 || s.used >= s.hard || extra && !takeAll(first.shared) {
			s.armTimer(max(left, overflowStep))
			return
		}
		s.wake(s.give(extra))
	}
}

// takeAll takes a slot of each limiter. If one of them has none, it takes no slot at all.
func takeAll(shared []*limiter) bool {
	for i, s := range shared {
		if !s.takeShared() {
			for _, had := range shared[:i] {
				had.giveShared()
			}
			return false
		}
	}
	return true
}

// takeShared takes a slot without waiting.
func (s *limiter) takeShared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.hard {
		return false
	}
	s.used++
	return true
}

func (s *limiter) giveShared() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
}

// wake gives a slot to the first waiter. The caller holds mu.
func (s *limiter) wake(p slot) {
	t := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	t.slot = p
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
func (s *limiter) release(p slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ages.out(time.Now(), p.at)
	s.used--
	if p.overflow {
		s.overflow--
	}
	if len(s.waiting) > 0 && s.used < s.soft {
		s.wake(s.give(false))
	}
}

// ageCounter counts slots by how long they have been in use, in ticks of overflowStep
// since start.
type ageCounter struct {
	start time.Time
	now   int64
	young [overflowAfter/overflowStep + 1]int // by tick, modulo their number
	old   int
}

// roll counts slots as old once they have been in use for longer than overflowAfter.
func (a *ageCounter) roll(now time.Time) {
	t, n := int64(now.Sub(a.start)/overflowStep), int64(len(a.young))
	for first := max(a.now+1, t-n+1); first <= t; first++ {
		a.old += a.young[first%n]
		a.young[first%n] = 0
	}
	a.now = max(a.now, t)
}

// in counts a slot that is taken now and returns its tick; out ends that.
func (a *ageCounter) in(now time.Time) int64 {
	a.roll(now)
	a.young[a.now%int64(len(a.young))]++
	return a.now
}

func (a *ageCounter) out(now time.Time, tick int64) {
	a.roll(now)
	if n := int64(len(a.young)); tick > a.now-n {
		a.young[tick%n]--
	} else {
		a.old--
	}
}

// stuck returns how many slots have been in use for longer than overflowAfter.
func (a *ageCounter) stuck(now time.Time) int {
	a.roll(now)
	return a.old
}

// channelSlot is what one channel in use takes: a slot of its tunnel and, if that one is
// beyond soft, a slot of the owner of the alias and one of the whole process. So stuck
// requests of other tunnels never use up the soft slots of a tunnel.
type channelSlot struct {
	tunnel, owner, all *limiter
	had                slot
}

// acquire waits for a slot, for maxWait at most; 0 means no limit. With crowdRequests in
// flight or waiting it waits for slotWait at most.
func (p *channelSlot) acquire(maxWait time.Duration, lost, cut <-chan struct{}) *relay.Error {
	var ok bool
	if p.had, ok = p.tunnel.try(); ok {
		return nil
	}
	var end wait
	p.had, end = p.tunnel.wait(maxWait, lost, cut, p.owner, p.all)
	switch end {
	case waitLost:
		return relay.ErrNotSent
	case waitLate:
		return relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer the requests before this one within %v, so that it was not sent", maxWait)
	case waitCrowded:
		return &relay.Error{
			Code:       relay.CodeOverloaded,
			Detail:     "too many requests are under way to this local server; it has to answer some first",
			RetryAfter: retryAfter,
		}
	}
	return nil
}

func (p *channelSlot) release() {
	if p.had.overflow {
		p.owner.giveShared()
		p.all.giveShared()
	}
	p.tunnel.release(p.had)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
