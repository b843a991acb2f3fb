package delivery

import (
	"slices"
	"sync"
	"time"

	"relay"
)

// slots hands out places, first come, first served. Those beyond the easy ones are
// given only to who has waited a while: a few hung requests must not stop the rest. And
// they are given by and by, because a crowd that only has to wait its turn goes slower
// with all of it on the tunnel at once; but for each place that hangs there are some at
// once.
type slots struct {
	easy, hard int
	crowd      int // in use and in line from which waiting has an end

	mu      sync.Mutex
	used    int
	extra   int // of them not easy ones
	ages    ages
	waiting []*turn
	timer   *time.Timer // of the line, while there is one
}

// turn is somebody in the line.
type turn struct {
	come   chan struct{} // closed when a place is given
	since  time.Time
	shared []*slots // one of each is needed for a place beyond the easy ones
	got    place
}

// place is one that somebody has.
type place struct {
	at    int64 // its tick
	extra bool  // it was not an easy one, and goes with one of each that is shared
}

// Bounds of places beyond the easy ones.
const (
	slotStep   = slotPatience / 8 // between two looks at the line
	leastMore  = 16               // places given at a look, or an eighth of those in use
	moreByHung = 4                // and as many for each that hangs
)

func newSlots(easy, hard, crowd int) *slots {
	return &slots{easy: easy, hard: hard, crowd: crowd, ages: ages{start: time.Now()}}
}

// try takes an easy place when there is one and nobody waits for it.
func (s *slots) try() (place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take()
}

// take is try with mu held.
func (s *slots) take() (place, bool) {
	if s.used >= s.easy || len(s.waiting) > 0 {
		return place{}, false
	}
	return s.give(false), true
}

// give makes a place; only with mu held.
func (s *slots) give(extra bool) place {
	s.used++
	if extra {
		s.extra++
	}
	return place{s.ages.in(time.Now()), extra}
}

// Ends of waiting for a place.
type wait uint8

const (
	waitOver    wait = iota // it is there
	waitLost                // gone or cut came first
	waitLate                // patience is over
	waitCrowded             // slotWait has passed in a crowd
)

// wait takes a place as soon as it is this caller's turn. A patience of 0 has no end.
func (s *slots) wait(patience time.Duration, gone, cut <-chan struct{}, shared ...*slots) (place, wait) {
	s.mu.Lock()
	if p, ok := s.take(); ok {
		s.mu.Unlock()
		return p, waitOver
	}
	end := waitLate
	if s.used+len(s.waiting) >= s.crowd && (patience <= 0 || patience > slotWait) {
		patience, end = slotWait, waitCrowded
	}
	t := &turn{come: make(chan struct{}), since: time.Now(), shared: shared}
	s.waiting = append(s.waiting, t)
	if len(s.waiting) == 1 {
		s.watch(slotPatience)
	}
	s.mu.Unlock()
	var enough <-chan time.Time
	if patience > 0 {
		late := time.NewTimer(patience)
		defer late.Stop()
		enough = late.C
	}
	select {
	case <-t.come:
		return t.got, waitOver
	case <-gone:
		end = waitLost
	case <-cut:
		end = waitLost
	case <-enough:
	}
	if s.leave(t) {
		return place{}, end
	}
	return t.got, waitOver
}

// watch has the line looked at after a while, where it may get more than the easy
// places; only with mu held.
func (s *slots) watch(after time.Duration) {
	switch {
	case s.hard <= s.easy:
	case s.timer == nil:
		s.timer = time.AfterFunc(after, s.squeeze)
	default:
		s.timer.Reset(after)
	}
}

// squeeze gives places beyond the easy ones to those who have waited long enough. One
// timer does it for the whole line: what hangs must not cost more the longer it is.
func (s *slots) squeeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	hung := s.ages.hung(time.Now())
	for more := max(leastMore, s.used/8) + moreByHung*hung; len(s.waiting) > 0; more-- {
		first := s.waiting[0]
		left := slotPatience - time.Since(first.since)
		extra := s.used-s.extra >= s.easy // else those beyond hang, and easy ones were given back
		if left > 0 || more <= 0 || s.used >= s.hard || extra && !takeAll(first.shared) {
			s.watch(max(left, slotStep))
			return
		}
		s.call(s.give(extra))
	}
}

// takeAll takes a place of each, or none.
func takeAll(shared []*slots) bool {
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

// takeShared takes a place that nobody waits for.
func (s *slots) takeShared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.hard {
		return false
	}
	s.used++
	return true
}

func (s *slots) giveShared() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
}

// call tells the first in line that a place is its own; only with mu held.
func (s *slots) call(p place) {
	t := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	t.got = p
	close(t.come)
}

// leave gives a place in line up; false when the turn had come meanwhile.
func (s *slots) leave(t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, t)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	return i >= 0
}

// release gives a place back, to the next in line where it is an easy one.
func (s *slots) release(p place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ages.out(time.Now(), p.at)
	s.used--
	if p.extra {
		s.extra--
	}
	if len(s.waiting) > 0 && s.used < s.easy {
		s.call(s.give(false))
	}
}

// ages counts places by how long they are in use, in ticks of slotStep since start.
type ages struct {
	start time.Time
	now   int64
	young [slotPatience/slotStep + 1]int // by tick, modulo their number
	old   int
}

// roll makes those old that came more than slotPatience before now.
func (a *ages) roll(now time.Time) {
	t, n := int64(now.Sub(a.start)/slotStep), int64(len(a.young))
	for first := max(a.now+1, t-n+1); first <= t; first++ {
		a.old += a.young[first%n]
		a.young[first%n] = 0
	}
	a.now = max(a.now, t)
}

// in counts one more and gives its tick; out counts it out.
func (a *ages) in(now time.Time) int64 {
	a.roll(now)
	a.young[a.now%int64(len(a.young))]++
	return a.now
}

func (a *ages) out(now time.Time, tick int64) {
	a.roll(now)
	if n := int64(len(a.young)); tick > a.now-n {
		a.young[tick%n]--
	} else {
		a.old--
	}
}

// hung is how many places are in use for longer than slotPatience.
func (a *ages) hung(now time.Time) int {
	a.roll(now)
	return a.old
}

// places are what one channel in use takes: one of its tunnel, and where that has no
// easy ones left, one of the owner of the alias and of the whole relay too. So whatever
// hangs elsewhere, each tunnel has its easy ones.
type places struct {
	tunnel, owner, all *slots
	had                place
}

// acquire takes a place; a patience of 0 has no end. In a crowd it gives up after a
// while.
func (p *places) acquire(patience time.Duration, lost, cut <-chan struct{}) *relay.Error {
	var ok bool
	if p.had, ok = p.tunnel.try(); ok {
		return nil
	}
	var end wait
	p.had, end = p.tunnel.wait(patience, lost, cut, p.owner, p.all)
	switch end {
	case waitLost:
		return relay.ErrNotSent
	case waitLate:
		return relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer the requests before this one within %v, so that it was not sent", patience)
	case waitCrowded:
		return &relay.Error{
			Code:       relay.CodeOverloaded,
			Detail:     "too many requests are under way to this local server; it has to answer some first",
			RetryAfter: retryAfter,
		}
	}
	return nil
}

func (p *places) release() {
	if p.had.extra {
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
