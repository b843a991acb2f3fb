//go:build unix

package store_test

import (
	"sync"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store"
	"relay/store/pgtest"
)

// While Postgres is stopped or frozen, events fail within 5 s. Afterwards the store works without
// a restart, and no attempt stays in the state delivering.
func TestPostgresAway(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t, pgtest.Options{})
	s := mustOpen(t, store.Options{URL: pg.URL(t), DataDir: t.TempDir()})
	s.SetRunning(func() map[relay.AttemptRef]bool { return nil })
	if _, _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	alias := withAlias(t, s)
	under := &relay.Event{
		ID: s.NewID(), AliasID: alias, ReceivedAt: time.Now(), State: relay.StateDelivering,
		Attempts: []relay.Attempt{{N: 1, State: relay.StateDelivering, ReceivedAt: time.Now()}},
	}
	<-s.Accept(under).Done()
	lost := func() {
		t.Helper()
		began := time.Now()
		if _, err := capture(s, alias); err == nil || relay.AsError(err).Code != relay.CodeStoreUnavailable {
			t.Errorf("an event was stored without a store: %v", err)
		}
		if took := time.Since(began); took > relaytest.Limit(5*time.Second, began) {
			t.Errorf("the caller waited %v", took)
		}
	}
	back := func() {
		t.Helper()
		eventually(t, "events can be stored again", func() bool { _, err := capture(s, alias); return err == nil })
		eventually(t, "the store is ready", func() bool { return s.Ready(t.Context()) == nil })
	}
	pg.Stop()
	lost()
	if err := s.Ready(t.Context()); err == nil {
		t.Error("ready without a database")
	}
	finish := s.Finish(under.ID, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now()}, "")
	<-finish.Done()
	if finish.Err() == nil {
		t.Error("an end was stored without a store")
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	back()
	eventually(t, "the attempt whose end was lost is interrupted", func() bool {
		e, err := s.Event(t.Context(), relay.System(), under.ID, 0)
		return err == nil && e.State == relay.StateInterrupted && e.Error.Code == relay.CodeResponseNotStored
	})

	thaw := freeze(t, pg)
	lost()
	before := s.Rounds() // the first of the counted rounds may have begun before the outage
	eventually(t, "the loop of the beat goes on while Postgres does not answer", func() bool { return s.Rounds() > before+1 })
	thaw()
	back()
}

// freeze stops the server and all of its processes until thaw.
func freeze(t *testing.T, pg *pgtest.Server) (thaw func()) {
	t.Helper()
	if err := pg.Freeze(); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		if err := pg.Thaw(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw)
	return thaw
}

// kill ends the server like a crash, and waits until it is gone.
func kill(t *testing.T, pg *pgtest.Server) {
	t.Helper()
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
}
