package events

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// TestHeavyReadsOfOneAccount: the reads of one account do not get all turns, and all viewers of shares count
// as one account. A turn is the permission to run one heavy read. A read that gets no turn in time fails as
// overloaded, and one whose context was canceled fails as canceled.
func TestHeavyReadsOfOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeavyReads(4)
		user := relay.Actor{Kind: relay.ActorUser, Account: 1}
		shares := []relay.Actor{{Kind: relay.ActorShare, Account: 2}, {Kind: relay.ActorShare, Account: 3}} // the shares belong to different accounts
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for _, who := range []relay.Actor{user, user, shares[0]} {
			if who == shares[0] { // acquire with a canceled context does not wait: it succeeds only if a turn is free
				if _, err := h.acquire(gone, user); err == nil {
					t.Error("one account has all turns")
				}
			}
			if _, err := h.acquire(t.Context(), who); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if _, err := h.acquire(t.Context(), shares[1]); err == nil || relay.AsError(err).Code != relay.CodeOverloaded || relay.AsError(err).RetryAfter == 0 {
			t.Errorf("a read without a turn: %v", err)
		}
		if waited := time.Since(began); waited != heavyWait {
			t.Errorf("it waited for %v", waited)
		}
		if _, err := h.acquire(gone, user); err != context.Canceled {
			t.Errorf("a reader that has gone: %v", err)
		}
		if a, b := readerOf(shares[0]), readerOf(shares[1]); a != b || a == readerOf(user) {
			t.Errorf("shares count for %d and %d", a, b)
		}
	})
}

// While other heavy reads have all turns of an account, the read that returns the result of a replay succeeds.
// If it failed as overloaded, the replay would look as if it had not been made.
func TestReadsOfOneAttemptTakeNoTurn(t *testing.T) {
	t.Parallel()
	s := openEvents(t, 1)
	for last := false; !last; { // the loop takes all turns of the account
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		release, err := s.heavyReads.acquire(gone, relay.System())
		if last = err != nil; !last {
			defer release()
		}
	}
	if _, err := s.Request(t.Context(), relay.System(), relay.ID{}, 0); !errors.Is(err, relay.ErrNotFound) {
		t.Errorf("a request: %v", err)
	}
	if _, err := s.Attempts(t.Context(), relay.System(), relay.ID{}, relay.AttemptPage{Before: 2, Limit: 1}); !errors.Is(err, relay.ErrNotFound) {
		t.Errorf("an attempt: %v", err)
	}
}
