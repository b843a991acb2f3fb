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
