package delivery

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestOverloadedInACrowdOnly(t *testing.T) {
	s := newSlots(2, 3, 5)
	for i := range 3 {
		if got, want := s.try(), i < 2; got != want {
			t.Fatalf("try %d = %v with two easy places", i+1, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		got := make(chan bool, 8)
		for range 3 {
			go func() { got <- s.wait(nil, nil) }()
			synctest.Wait()
		}
		begin := time.Now()
		if s.wait(nil, nil) || time.Since(begin) != slotWait {
			t.Errorf("the sixth in flight waited %v", time.Since(begin))
		}
		if !<-got || len(got) != 0 {
			t.Error("not one of the waiting got the one hard place")
		}
		for range 3 {
			s.release()
		}
		for range 2 {
			if !<-got {
				t.Error("a released place was not handed on")
			}
		}
		s.release()
		s.release()
		if s.used != 0 {
			t.Errorf("%d places in use at the end", s.used)
		}
	})
}

// All who wait look for a place in the same instant: the last to come took it from
// the first.
func TestPlacesGoToWhoCameFirst(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			s := newSlots(1, 2, 100)
			s.try()
			turn := make(chan int)
			for i := range 5 {
				go func() { s.wait(nil, nil); turn <- i }()
				synctest.Wait()
			}
			for want := range 5 {
				if got := <-turn; got != want {
					t.Fatalf("place %d went to who came as number %d", want, got)
				}
				s.release() // one of two, so the line waits for its patience again
			}
			s.release()
		})
	}
}
