package limiter

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"relay"
)

func newLimiter(soft, hard int) *Limiter { return &Limiter{soft: soft, hard: hard} }

// take waits for a slot without a time limit. The owner and the process each have one slot beyond soft. It
// returns nil if the wait ends with an error.
func (s *Limiter) take() *Slot {
	p := &Slot{tunnel: s, owner: semaphore.NewWeighted(1), all: semaphore.NewWeighted(1)}
	if p.Acquire(0, nil, nil) != nil {
		return nil
	}
	return p
}

func TestOverloadedOnlyWithManyRequests(t *testing.T) {
	const promised = 2000 // up to this number of requests in progress, none is refused as overloaded
	synctest.Test(t, func(t *testing.T) {
		s := newLimiter(2, 3)
		begin := time.Now()
		first, second := s.take(), s.take()
		if first.overflow || second.overflow || time.Since(begin) > 0 {
			t.Fatal("one of two slots is beyond soft, or was waited for")
		}
		got := make(chan *Slot, promised)
		for range promised - 2 {
			go func() {
				if p := s.take(); p != nil {
					got <- p
				}
			}()
		}
		synctest.Wait()
		begin = time.Now()
		err := (&Slot{tunnel: s}).Acquire(0, nil, nil)
		if err == nil || err.Code != relay.CodeOverloaded || time.Since(begin) != slotWait {
			t.Errorf("request %d in flight waited %v, with the result %v", promised+1, time.Since(begin), err)
		}
		third := <-got
		if len(got) != 0 || !third.overflow {
			t.Error("not one of those that waited got the overflow slot")
		}
		for _, p := range []*Slot{first, second, third} {
			p.Release()
		}
		for range promised - 3 {
			(<-got).Release()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.used+s.overflow != 0 {
			t.Errorf("%d slots in use at the end", s.used)
		}
	})
}

// TestSlotsAreGivenInOrderOfArrival: five requests that wait for one slot get it in the order of their
// arrival.
func TestSlotsAreGivenInOrderOfArrival(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			s := newLimiter(1, 2)
			first := s.take()
			type ready struct {
				i    int
				slot *Slot
			}
			turns := make(chan ready)
			for i := range 5 {
				go func() { turns <- ready{i, s.take()} }()
				synctest.Wait()
			}
			for want := range 5 {
				got := <-turns
				if got.i != want {
					t.Fatalf("slot %d went to request %d", want, got.i)
				}
				// Only one of two slots is free, so the next request waits for overflowAfter again.
				got.slot.Release()
			}
			first.Release()
		})
	}
}

// TestOverflowIsAdmittedGradually: 1,999 requests of 50 ms use at most 128 slots at once, and end as soon as
// 64 slots allow.
func TestOverflowIsAdmittedGradually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimiter(64, 2000)
		most := 0
		var work sync.WaitGroup
		for range 1999 {
			work.Go(func() {
				p := s.take()
				if p == nil {
					t.Error("no slot")
					return
				}
				s.mu.Lock()
				most = max(most, s.used)
				s.mu.Unlock()
				time.Sleep(50 * time.Millisecond)
				p.Release()
			})
		}
		begin := time.Now()
		work.Wait()
		if most > 128 {
			t.Errorf("%d at once", most)
		}
		if took := time.Since(begin); took > 1999/64*50*time.Millisecond+50*time.Millisecond {
			t.Errorf("all requests took %v", took)
		}
	})
}

// TestHungSlotsAreReplaced: beside 64 hung requests, 200 further ones all get a slot within overflowAfter and
// one step.
func TestHungSlotsAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimiter(64, 2000)
		for range 64 {
			s.take()
		}
		got := make(chan *Slot, 200)
		for range 200 {
			go func() { got <- s.take() }()
		}
		synctest.Wait()
		time.Sleep(overflowAfter + overflowStep)
		synctest.Wait()
		if len(got) != 200 {
			t.Errorf("%d of 200 have a slot beside 64 hung requests", len(got))
		}
	})
}

// TestHungRequestsOfOthersLeaveTheSoftSlots: when one alias uses all slots beyond soft, another one still
// gets all of its soft slots. At the end all slots are free.
func TestHungRequestsOfOthersLeaveTheSoftSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, all := semaphore.NewWeighted(10), semaphore.NewWeighted(10)
		noisy, quiet := newLimiter(4, 100), newLimiter(4, 100)
		stop := make(chan struct{})
		var work sync.WaitGroup
		ask := func(s *Limiter, n int) (had, lost *int) {
			had, lost = new(int), new(int)
			var mu sync.Mutex
			for range n {
				work.Go(func() {
					p := Slot{tunnel: s, owner: owner, all: all}
					err := p.Acquire(0, nil, stop)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						*lost++
						return
					}
					*had++
					work.Go(func() { <-stop; p.Release() })
				})
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			return had, lost
		}
		if had, lost := ask(noisy, 50); *had != 14 || *lost != 0 {
			t.Errorf("%d slots of the noisy one, %d refused", *had, *lost)
		}
		if had, lost := ask(quiet, 10); *had != 4 || *lost != 0 {
			t.Errorf("%d slots of the quiet one, %d refused", *had, *lost)
		}
		close(stop)
		work.Wait()
		// The timers of both limiters run within this time.
		time.Sleep(time.Minute)
		synctest.Wait()
		if noisy.used+quiet.used != 0 || !owner.TryAcquire(10) || !all.TryAcquire(10) {
			t.Errorf("in use at the end: %d, %d, or overflow slots", noisy.used, quiet.used)
		}
	})
}

// TestWaitForASlotEndsWithTheResponseTimeout: Acquire returns local-timeout after maxWait if no slot becomes
// free.
func TestWaitForASlotEndsWithTheResponseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Slot{tunnel: newLimiter(1, 1), owner: semaphore.NewWeighted(1), all: semaphore.NewWeighted(1)}
		p.tunnel.take()
		begin := time.Now()
		err := p.Acquire(15*time.Second, nil, nil)
		if err == nil || err.Code != relay.CodeLocalTimeout || time.Since(begin) != 15*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// TestHungOverflowLeavesTheSoftSlots: while hung requests use all slots beyond soft, other requests get the free soft
// slots.
func TestHungOverflowLeavesTheSoftSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, all, tunnel := semaphore.NewWeighted(5), semaphore.NewWeighted(5), newLimiter(2, 100)
		ask := func() *Slot { return &Slot{tunnel: tunnel, owner: owner, all: all} }
		var quick, hung []*Slot
		for i := range 7 {
			p := ask()
			if err := p.Acquire(0, nil, nil); err != nil {
				t.Fatal(err)
			}
			if i < 2 {
				quick = append(quick, p)
			} else {
				hung = append(hung, p)
			}
		}
		for _, p := range quick {
			p.Release()
		}
		// These requests come one after another, so that none needs a slot beyond soft.
		for range 3 {
			p := ask()
			if err := p.Acquire(2*overflowAfter, nil, nil); err != nil {
				t.Fatal("beside five that hang:", err)
			}
			p.Release()
		}
		for _, p := range hung {
			p.Release()
		}
		time.Sleep(time.Minute)
		if tunnel.used+tunnel.overflow != 0 || !owner.TryAcquire(5) || !all.TryAcquire(5) {
			t.Errorf("in use at the end: %d, %d, or of the owner", tunnel.used, tunnel.overflow)
		}
	})
}
