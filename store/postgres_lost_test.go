//go:build unix

package store_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"relay"
)

// If Postgres ends a session while a replay begins, or an event is read, the caller gets store-unavailable
// and not a driver error. Afterwards a replay can begin again.
func TestEndedSessionsAreStoreUnavailable(t *testing.T) {
	t.Parallel()
	s, _, o := spooling(t, 0)
	alias, db := withAlias(t, s), database(t, o)
	id, err := capture(s, alias)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var killing sync.WaitGroup
	killing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			_, _ = db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		}
	})
	codes := map[string]int{}
	tell := func(what string, err error) {
		var own *relay.Error
		switch {
		case err == nil:
			codes[""]++
		case !errors.As(err, &own):
			t.Errorf("%s: %v", what, err)
		default:
			codes[own.Code]++
			if own.Code != relay.CodeStoreUnavailable {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	for codes[relay.CodeStoreUnavailable] < 20 {
		_, err := s.BeginReplay(t.Context(), relay.System(), id, false)
		tell("BeginReplay", err)
		_, err = s.Event(t.Context(), relay.System(), id, 1<<20)
		tell("Event", err)
	}
	close(stop)
	killing.Wait()
	eventually(t, "a replay can be begun again", func() bool {
		_, err := s.BeginReplay(t.Context(), relay.System(), id, false)
		return err == nil
	})
}
