package delivery

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestOverloadedInACrowdOnly(t *testing.T) {
	s := newSlots(2, 3, 5)
	if !s.try() || !s.try() || s.try() {
		t.Fatal("not two easy places")
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
		if !<-got || !<-got {
			t.Error("released places were not handed on")
		}
		s.release()
		s.release()
		if s.used != 0 {
			t.Errorf("%d places in use at the end", s.used)
		}
	})
}
