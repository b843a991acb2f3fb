package waits

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestInTime: a limit that is noticed in time ends the wait at once.
func TestInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		over, _ := After(time.Minute)
		<-over
		ctx, cancel := WithTimeout(t.Context(), time.Minute)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took != 2*time.Minute || ctx.Err() != context.DeadlineExceeded {
			t.Errorf("%v, error %v", took, ctx.Err())
		}
	})
}

// TestLate: a limit that is noticed late decides CatchUp later, also when this is noticed late as well.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now = func() time.Time { return time.Now().Add(time.Hour) }
		defer func() { now = time.Now }()
		began := time.Now()
		over, _ := After(time.Minute)
		<-over
		if took := time.Since(began); took != time.Minute+CatchUp {
			t.Errorf("decides after %v", took)
		}
	})
}

// TestStoppedLimit: a limit whose timer was freed never decides.
func TestStoppedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over, stop := After(time.Minute)
		stop()
		time.Sleep(time.Hour)
		select {
		case <-over:
			t.Error("the limit has decided")
		default:
		}
	})
}

func TestIsLate(t *testing.T) {
	at := time.Now()
	for after, want := range map[time.Duration]bool{-time.Hour: false, 0: false, lateAfter - 1: false, lateAfter: true, time.Hour: true} {
		if IsLate(at, at.Add(after)) != want {
			t.Errorf("%v after the limit: %v", after, !want)
		}
	}
	if IsLate(time.Time{}, at) {
		t.Error("no limit is late")
	}
}

// TestEndOfContext: the parent and cancel end the context before its time.
func TestEndOfContext(t *testing.T) {
	parent, end := context.WithCancel(t.Context())
	ctx, cancel := WithTimeout(parent, time.Hour)
	defer cancel()
	if err := ctx.Err(); err != nil {
		t.Error(err)
	}
	end()
	<-ctx.Done()
	own, cancelOwn := WithTimeout(t.Context(), time.Hour)
	cancelOwn()
	<-own.Done()
	if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(own.Err(), context.Canceled) {
		t.Errorf("parent: %v, cancel: %v", ctx.Err(), own.Err())
	}
}
