package events

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"relay"
)

// An account that has a hundred reads waiting delays another account by the reads that run, not
// by those that wait; the holders of shares are one account; a read that gets no turn is told
// that the relay is overloaded.
func TestHeavyReadsOfOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeavyReads(4)
		user := func(account int64) relay.Actor { return relay.Actor{Kind: relay.ActorUser, Account: account} }
		hold, entered := make(chan struct{}), make(chan int64, 300)
		read := func(who relay.Actor, account int64) {
			release, err := h.acquire(t.Context(), who)
			if err != nil {
				if relay.AsError(err).Code != relay.CodeOverloaded || relay.AsError(err).RetryAfter == 0 {
					t.Errorf("%v", err)
				}
				entered <- -account
				return
			}
			entered <- account
			<-hold
			release()
		}
		for range 100 {
			go read(user(1), 1)
		}
		synctest.Wait()
		for range 100 {
			go read(relay.Actor{Kind: relay.ActorShare, Account: 2}, 100) // shares of whomever
		}
		synctest.Wait()
		if len(entered) != 3 || <-entered != 1 || <-entered != 1 || <-entered != 100 {
			t.Fatalf("%d run at once", len(entered))
		}
		go read(user(2), 2)
		synctest.Wait()
		ends, before := 0, int64(0)
		for ; before != 2; ends++ {
			hold <- struct{}{} // one of those that run ends
			synctest.Wait()
			before = <-entered
		}
		if ends > 6 {
			t.Fatalf("the account that has none waited for %d others", ends)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.acquire(gone, user(3)); err != context.Canceled {
			t.Errorf("a reader who has gone: %v", err)
		}
		late := 0
		for range 201 - 3 - ends { // nothing ends: all that wait are told so
			if <-entered < 0 {
				late++
			}
		}
		if late != 201-3-ends {
			t.Errorf("%d of %d were refused", late, 201-3-ends)
		}
		close(hold)
		synctest.Wait()
		if h.running != 0 || len(h.of) != 0 || len(h.waiting) != 0 {
			t.Errorf("left: %d run, %d wait, %d accounts", h.running, len(h.waiting), len(h.of))
		}
	})
}

// What tells of a replay that was made takes no turn: an error would say that it was not made.
func TestReadsOfOneAttemptTakeNoTurn(t *testing.T) {
	t.Parallel()
	s := openEvents(t, 1)
	for range s.heavyReads.perAccount {
		release, err := s.heavyReads.acquire(t.Context(), relay.System())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	if _, err := s.Request(t.Context(), relay.System(), relay.ID{}, 0); !errors.Is(err, relay.ErrNotFound) {
		t.Errorf("a request: %v", err)
	}
	if _, err := s.Attempts(t.Context(), relay.System(), relay.ID{}, relay.AttemptPage{Before: 2, Limit: 1}); !errors.Is(err, relay.ErrNotFound) {
		t.Errorf("an attempt: %v", err)
	}
}
