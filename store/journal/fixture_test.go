package journal

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/store/cluster"
	"relay/store/db"
	"relay/store/events"
	"relay/store/partition"
	"relay/store/people"
	"relay/store/schematest"
	"relay/store/seal"
	"relay/store/spool"
)

// Names for the types that fixture embeds. A fixture has the operations of these types, as the store has.
type (
	peopleStore  = people.Store
	eventStore   = events.Store
	clusterStore = cluster.Store
)

// fixture is a journal with the packages that it needs, without the loops of the store.
type fixture struct {
	*peopleStore
	*eventStore
	*clusterStore
	*Journal

	db   *db.DB
	wait sync.WaitGroup
}

// open opens a new store without a server; the address is that of a Postgres, or "" for SQLite.
func open(t testing.TB, address string) *fixture {
	t.Helper()
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	s := &fixture{}
	p := spool.New(spool.Options{Dir: dir, Log: log, Claimant: func() (string, string) { return s.Claimant() }})
	d, err := db.Open(t.Context(), db.Options{URL: address, DataDir: dir, Log: log})
	if d != nil {
		t.Cleanup(func() { _ = d.Close() })
	}
	if err != nil {
		t.Fatal(err)
	}
	s.db = d
	s.clusterStore = cluster.New(d, cluster.Options{
		Log: log, DataDir: dir, CorrectClock: true, SpoolSteps: p.Waiting.Load, Go: s.wait.Go,
		Heard: func(relay.ChangeKind, int64, string) bool { return false }, Lost: func(int64) {},
	})
	d.Finish = s.FinishUpdate
	s.eventStore = events.New(d, log, p, 0)
	s.peopleStore = people.New(d, people.Options{
		Log: log, AliasClaim: true, AliasRemoved: func(context.Context) error { return nil }, NodeID: s.NodeID,
		Keys: seal.NewRing(nil, ""), Alone: func(context.Context) (bool, error) { return true, nil },
	})
	s.Journal = New(d, p, s.clusterStore, Options{
		Log: log, DataDir: dir, SpoolID: people.NewSecret("node_"), Stored: func(int64, int64) {}, Judged: s.NoteValid, Go: s.wait.Go,
	})
	if _, _, err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A statement of partition.Make has a time limit of 300 ms, and may need longer on a machine that runs
	// other tests. The loop then tries again.
	for err = partition.Make(t.Context(), d, log, time.Now()); db.IsLocked(err); {
		err = partition.Make(t.Context(), d, log, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// served returns a store on the given database with the alias hooks of alice, and a running journal. The
// address is that of a Postgres, or "" for SQLite.
func served(t testing.TB, address string) (s *fixture, alias int64) {
	t.Helper()
	s = open(t, address)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		s.StopJournal()
		stop()
		s.wait.Wait()
		_ = errors.Join(s.LeaveNodes(), s.CloseNode(), s.UnlockDataDir())
	})
	err := errors.Join(s.LockDataDir(), s.Join(ctx, s.Predecessor()))
	if err != nil {
		t.Fatal(err)
	}
	if s.db.Dialect.SeveralNodes() {
		s.wait.Go(func() { s.NodeLoop(ctx) })
	}
	s.SetFeed(func([]relay.Change) {})
	if err := s.StartJournal(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = s.CreateAccount(ctx, relay.System(), "alice", false)
	a, aliasErr := s.CreateAlias(ctx, relay.System(), "hooks", "alice")
	if err = errors.Join(err, aliasErr); err != nil {
		t.Fatal(err)
	}
	return s, a.ID
}

// servedOnPostgres is served on a new Postgres.
func servedOnPostgres(t testing.TB) (*fixture, int64) {
	t.Helper()
	return served(t, schematest.URL(t))
}

// forget removes events by SQL.
func (s *fixture) forget(t testing.TB, where string, args ...any) {
	t.Helper()
	err := s.db.Update(t.Context(), "forget", func(c *db.Tx) error {
		for _, table := range []string{"queue", "attempts", "payloads"} {
			c.Do(`DELETE FROM `+table+` WHERE event_id IN (SELECT id FROM events WHERE `+where+`)`, args...)
		}
		c.Do(`DELETE FROM events WHERE `+where, args...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wait(ticket *relay.Ticket) error {
	<-ticket.Done()
	return ticket.Err()
}

func settle(t testing.TB, ticket *relay.Ticket) {
	t.Helper()
	if err := wait(ticket); err != nil {
		t.Fatal(err)
	}
}
