package turns

import (
	"context"
	"testing"
	"testing/synctest"
)

// An account with a hundred waiting tasks delays the first task of another account only by its running tasks,
// and not by the waiting ones. It never has all turns.
func TestTurnsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(3, 2)
		hold, entered := make(chan struct{}), make(chan int64, 300)
		run := func(account int64) {
			done, err := turns.Wait(t.Context(), account)
			if err != nil {
				t.Error(err)
				return
			}
			entered <- account
			<-hold
			done()
			done() // a second call does nothing
		}
		for range 100 {
			go run(1)
		}
		synctest.Wait()
		for range 100 {
			go run(2)
		}
		synctest.Wait()
		if len(entered) != 3 || <-entered != 1 || <-entered != 1 || <-entered != 2 {
			t.Fatalf("%d run at once", len(entered))
		}
		go run(3)
		synctest.Wait()
		ends, before := 0, int64(0)
		for ; before != 3; ends++ {
			hold <- struct{}{} // one of the running tasks ends
			synctest.Wait()
			before = <-entered
		}
		if ends > 6 {
			t.Errorf("the account without any task waited for %d others", ends)
		}
		close(hold)
		synctest.Wait()
		if turns.running != 0 || len(turns.of) != 0 || len(turns.waiting) != 0 {
			t.Errorf("left: %d run, %d wait, %d accounts", turns.running, len(turns.waiting), len(turns.of))
		}
	})
}

// A task whose context ends stops waiting and leaves its turn to others. A task that need not wait begins
// even with an ended context.
func TestTurnsOfEndedContexts(t *testing.T) {
	t.Parallel()
	turns := New(1, 1)
	ended, end := context.WithCancelCause(t.Context())
	end(context.DeadlineExceeded)
	done, err := turns.Wait(ended, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range []int64{1, 2} {
		if _, err := turns.Wait(ended, account); err != context.DeadlineExceeded {
			t.Errorf("of account %d: %v", account, err)
		}
	}
	done()
	if done, err = turns.Wait(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	done()
	if turns.running != 0 || len(turns.of) != 0 || len(turns.waiting) != 0 {
		t.Errorf("left: %d run, %d wait, %d accounts", turns.running, len(turns.waiting), len(turns.of))
	}
}
