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
	waiting []chan struct{}
}

func newSlots(easy, hard, crowd int) *slots { return &slots{easy: easy, hard: hard, crowd: crowd} }

// try takes an easy place when there is one and nobody waits for it.
func (s *slots) try() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(s.easy)
}

// take takes a place below most; only with mu held.
func (s *slots) take(most int) bool {
	if s.used >= most || most == s.easy && len(s.waiting) > 0 {
		return false
	}
	s.used++
	return true
}

// wait takes a place as soon as it is this caller's turn. False when gone or cut
// came first, or, in a crowd, slotWait has passed.
func (s *slots) wait(gone, cut <-chan struct{}) bool {
	s.mu.Lock()
	if s.take(s.easy) {
		s.mu.Unlock()
		return true
	}
	crowded := s.used+len(s.waiting) >= s.crowd
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()
	begin := time.Now()
	again := time.NewTicker(slotPatience)
	defer again.Stop()
	for {
		select {
		case <-turn:
			return true
		case <-again.C:
			if s.squeeze(turn) {
				return true
			}
			if !crowded || time.Since(begin) < slotWait {
				continue
			}
		case <-gone:
		case <-cut:
		}
		return !s.leave(turn)
	}
}

// squeeze gives a place beyond the easy ones to the first in line, who has waited at
// least as long as the caller. True when the caller's own turn has come.
func (s *slots) squeeze(turn chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) > 0 && s.take(s.hard) {
		s.call()
	}
	return closed(turn)
}

// call tells the first in line that a place is its own; only with mu held.
func (s *slots) call() {
	close(s.waiting[0])
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
}

// leave gives a place in line up; false when the turn had come meanwhile.
func (s *slots) leave(turn chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, turn)
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
