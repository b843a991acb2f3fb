package delivery

import (
	"slices"
	"sync"
	"time"

	"relay"
)

// slots hands out places, first come, first served. Those beyond the easy ones are
// given only to who has waited a while: a few hung requests must not stop the rest.
type slots struct {
	easy, hard int
	crowd      int // in use and in line from which waiting has an end

	mu      sync.Mutex
	used    int
	waiting []turn
	timer   *time.Timer // of the line, while there is one
}

// turn is a place in the line.
type turn struct {
	come  chan struct{} // closed when a place is given
	since time.Time
}

func newSlots(easy, hard, crowd int) *slots { return &slots{easy: easy, hard: hard, crowd: crowd} }

// try takes an easy place when there is one and nobody waits for it.
func (s *slots) try() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take()
}

// take is try with mu held.
func (s *slots) take() bool {
	if s.used >= s.easy || len(s.waiting) > 0 {
		return false
	}
	s.used++
	return true
}

// wait takes a place as soon as it is this caller's turn. False when gone or cut
// came first, or, in a crowd, slotWait has passed.
func (s *slots) wait(gone, cut <-chan struct{}) bool {
	s.mu.Lock()
	if s.take() {
		s.mu.Unlock()
		return true
	}
	var enough <-chan time.Time
	if s.used+len(s.waiting) >= s.crowd {
		late := time.NewTimer(slotWait)
		defer late.Stop()
		enough = late.C
	}
	t := turn{make(chan struct{}), time.Now()}
	s.waiting = append(s.waiting, t)
	if len(s.waiting) == 1 {
		s.watch(slotPatience)
	}
	s.mu.Unlock()
	select {
	case <-t.come:
		return true
	case <-gone:
	case <-cut:
	case <-enough:
	}
	return !s.leave(t)
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
	for len(s.waiting) > 0 {
		left := slotPatience - time.Since(s.waiting[0].since)
		if left > 0 || s.used >= s.hard {
			s.watch(max(left, slotPatience/8))
			return
		}
		s.used++
		s.call()
	}
}

// call tells the first in line that a place is its own; only with mu held.
func (s *slots) call() {
	close(s.waiting[0].come)
	s.waiting[0] = turn{}
	s.waiting = s.waiting[1:]
}

// leave gives a place in line up; false when the turn had come meanwhile.
func (s *slots) leave(t turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, t)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	return i >= 0
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.used > s.easy {
		s.used--
		return
	}
	s.call()
}

// places are the slots that one channel in use takes: of its tunnel, of the
// owner of the alias and of the whole relay.
type places [3]*slots

// acquire takes one place of each; in a crowd it gives up after a while.
func (p places) acquire(lost, cut <-chan struct{}) *relay.Error {
	for i, s := range p {
		if s.try() || s.wait(lost, cut) {
			continue
		}
		for _, had := range p[:i] {
			had.release()
		}
		if closed(lost) || closed(cut) {
			return relay.ErrNotSent
		}
		return &relay.Error{
			Code:       relay.CodeOverloaded,
			Detail:     "too many requests are under way to this local server; it has to answer some first",
			RetryAfter: retryAfter,
		}
	}
	return nil
}

func (p places) release() {
	for _, s := range p {
		s.release()
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
