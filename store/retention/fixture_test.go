package retention

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/partition"
	"relay/store/people"
	"relay/store/plantest"
	"relay/store/seal"
	"relay/store/spool"
	"relay/store/usage"
)

// fixture is package retention with the packages that it needs, on a database that no relayd serves: only the
// test removes rows.
type fixture struct {
	*Retention
	people *people.Store
	wait   sync.WaitGroup
}

// open opens a new store; the address is that of a Postgres, or "" for SQLite.
func open(t testing.TB, address string, limits usage.Options) *fixture {
	t.Helper()
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	d, err := db.Open(t.Context(), db.Options{URL: address, DataDir: dir, Log: log})
	if d != nil {
		t.Cleanup(func() { _ = d.Close() })
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &fixture{}
	t.Cleanup(s.wait.Wait)
	limits.Log, limits.Go = log, s.wait.Go
	u := usage.New(d, limits)
	d.Finish = func(c *db.Tx) (func() <-chan struct{}, error) {
		return func() <-chan struct{} { u.Committed(c); return db.Published }, nil
	}
	s.Retention = New(d, spool.New(spool.Options{Dir: dir, Log: log}), u, Options{Log: log})
	s.people = people.New(d, people.Options{
		Log: log, AliasRemoved: s.AliasRemoved, NodeID: func() string { return "" }, Keys: seal.NewRing(nil, ""),
		Alone: func(context.Context) (bool, error) { return true, nil },
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

// aliases makes aliases of one account, and returns the id of the first.
func (s *fixture) aliases(t testing.TB, n int) (first int64) {
	t.Helper()
	if _, err := s.people.CreateAccount(t.Context(), relay.System(), "alice", false); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		a, err := s.people.CreateAlias(t.Context(), relay.System(), fmt.Sprint("a", i), "alice")
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = a.ID
		}
	}
	return first
}

// insert inserts an event with one attempt, which arrived at the given time, into an alias.
func (s *fixture) insert(t testing.TB, alias int64, at time.Time) relay.ID {
	t.Helper()
	id := events.LowestID(at)
	err := s.db.Update(t.Context(), "insert", func(c *db.Tx) error {
		c.Do(`INSERT INTO events (`+plantest.EventColumns+`) VALUES (?, ?, ?, ?, '', 0, 'POST', ?, 1, '', '', '', '', 0, 0, ?, '', '', 200, 1, 1, 1, '', 0)`,
			id, alias, db.Micros(at), db.Micros(at), []byte("/"), events.Delivered)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// payload stores the bytes of a message of an event for attempt n.
func (s *fixture) payload(t testing.TB, id relay.ID, alias int64, n, size int) {
	t.Helper()
	m := &relay.Message{Head: []byte("HTTP/1.1 200 OK"), Body: relay.Body{Data: make([]byte, size), Size: int64(size), State: relay.BodyComplete}}
	err := s.db.Update(t.Context(), "insert", func(c *db.Tx) error {
		c.Do(`INSERT INTO payloads (`+events.PayloadColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, events.PayloadValues(id, n, m, nil, nil)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.usage.Add(alias, events.StoredSize(m))
}
