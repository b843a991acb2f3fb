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
		<-After(time.Minute)
		ctx, cancel := WithTimeout(t.Context(), time.Minute)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took != 2*time.Minute || ctx.Err() != context.DeadlineExceeded {
			t.Errorf("%v, error %v", took, ctx.Err())
		}
	})
}

// TestLate: a limit that is noticed late ends the wait CatchUp after it was noticed.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stopped = 5 * time.Minute // in the middle of which the limit is over
		began, first := time.Now(), true
		now = func() time.Time {
			if first {
				first = false
				return time.Now().Add(stopped)
			}
			return time.Now().Add(-CatchUp)
		}
		defer func() { now = time.Now }()
		<-After(time.Minute)
		if took := time.Since(began); took != time.Minute+CatchUp {
			t.Errorf("decides after %v", took)
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
