package store

import (
	"fmt"
	"testing"
	"time"

	"relay"
	"relay/store/plantest"
	"relay/store/schematest"
)

// The reads and changes of events and queues use an index and never scan the whole store.
func TestPostgresPlans(t *testing.T) {
	t.Parallel()
	s, p := storeWithPlans(t)
	who := fillForPlans(t, s)
	ctx, now := t.Context(), time.Now()
	var all []relay.ID
	if err := s.db.Read.Select(&all, `SELECT id FROM events ORDER BY id`); err != nil {
		t.Fatal(err)
	}
	middle := all[len(all)/2]
	for what, f := range map[string]relay.Filter{
		"first page": {}, "page in the middle": {Cursor: middle.String()}, "alias": {Alias: "a3"}, "rare alias": {Alias: "a2"},
		"status": {Status: "404"}, "state": {State: relay.StateQueued}, "method": {Method: "GET"}, "path": {Alias: "a3", Path: "/x"},
		"time": {Since: middle.Time(), Until: middle.Time().Add(time.Hour)}, "text": {Texts: []relay.TextFilter{{Text: "needle"}}}, "text of an alias": {Alias: "a3", Texts: []relay.TextFilter{{Text: "needle"}}},
	} {
		f.Budget = 50 * time.Millisecond
		for _, by := range []relay.Actor{who, relay.System()} {
			p.Planned(t, "list by "+what, func() error { _, err := s.Events(ctx, by, f); return err })
		}
	}
	p.Planned(t, "event", func() error { _, err := s.Event(ctx, who, middle, 100); return err })
	p.Planned(t, "attempt", func() error {
		_, err := s.AttemptHeads(ctx, 4, []relay.AttemptRef{{Event: middle, N: 1}, {Event: all[0], N: 1}})
		return err
	})
	p.Planned(t, "summaries", func() error { _, err := s.Summaries(ctx, all[:200]); return err })
	p.Planned(t, "figures", func() error { _, err := s.Figures(ctx, who, "a3", now.Add(-time.Hour), now, 10); return err })
	p.Planned(t, "health", func() error {
		_, err := s.AliasHealth(ctx, who, []int64{1, 2, 3, 4}, now.Add(-time.Hour), 24)
		return err
	})
	p.Planned(t, "queues", func() error { _, err := s.QueueStats(ctx, []int64{1, 2, 3, 4}); return err })
	waiting, err := s.Events(ctx, who, relay.Filter{Alias: "a3", State: relay.StateQueued, Limit: 1, Budget: time.Minute})
	if err != nil || len(waiting.Events) == 0 {
		t.Fatal(waiting, err)
	}
	p.Planned(t, "positions", func() error {
		_, err := s.AttemptHeads(ctx, 4, []relay.AttemptRef{{Event: waiting.Events[0].ID, N: 1}})
		return err
	})
	p.Planned(t, "replay", func() error { _, err := s.BeginReplay(ctx, who, middle, false); return err })
	p.Planned(t, "release", func() error { _, err := s.Release(ctx, who, "a3"); return err })
	p.Planned(t, "start", func() error { return s.RaiseIDs(ctx) })
	p.Planned(t, "sweep", func() error { _, err := s.Sweep(ctx); return err })
	p.Planned(t, "delete", func() error { return s.DeleteEvent(ctx, who, all[1]) })
}

// storeWithPlans returns a store without a server, and a planner that records the plans of its statements.
func storeWithPlans(t *testing.T) (*Store, *plantest.Planner) {
	t.Helper()
	s := openMigrated(t, Options{URL: schematest.URL(t), DataDir: t.TempDir(), Retention: 1000 * time.Hour})
	makePartitions(t, s)
	return s, plantest.Attach(t, s.db)
}

// fillForPlans makes twenty aliases of one account with events.
func fillForPlans(t *testing.T, s *Store) relay.Actor {
	t.Helper()
	a, err := s.CreateAccount(t.Context(), relay.System(), "alice", false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := s.CreateAlias(t.Context(), relay.System(), fmt.Sprint("a", i), "alice"); err != nil {
			t.Fatal(err)
		}
	}
	plantest.Fill(t, s.db)
	return relay.Actor{Account: a.ID, AccountName: a.Name, Name: a.Name, Kind: relay.ActorUser, Scopes: relay.AllScopes}
}
