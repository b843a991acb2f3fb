package store_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/schematest"
)

// A failover of Postgres to a lagging replica loses the newest revisions, and their ids are used
// again. A node that had read them reads everything again, and receives later changes of other processes.
func TestChangesAfterAFailover(t *testing.T) {
	t.Parallel()
	everything := []relay.Change{{Kind: relay.ChangeAlias}, {Kind: relay.ChangeAccount}, {Kind: relay.ChangeTunnel}, {Kind: relay.ChangeMissed}}
	for name, later := range map[string]int{"nothing written yet": 0, "fewer written than lost": 2, "as many": 5, "more": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t)}
			s := mustOpen(t, o)
			if _, _, err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var heard []relay.Change
			if err := s.Serve(t.Context(), func(list []relay.Change) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, list...)
			}); err != nil {
				t.Fatal(err)
			}
			hears := func(what string, want ...relay.Change) {
				t.Helper()
				eventually(t, what, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return !slices.ContainsFunc(want, func(w relay.Change) bool {
						return !slices.ContainsFunc(heard, func(c relay.Change) bool { return c.Kind == w.Kind && c.Alias == w.Alias && c.Account == w.Account })
					})
				})
			}
			db := database(t, o)
			tunnel := func(alias int) relay.Change {
				const row = `INSERT INTO revisions (at, origin, kind, alias_id, n, account_id, credential) VALUES ($1, 'other', 'tunnel', $2, 0, 0, '')`
				if _, err := db.Exec(row, time.Now().UnixMicro(), alias); err != nil {
					t.Error(err)
				}
				return relay.Change{Kind: relay.ChangeTunnel, Alias: int64(alias)}
			}
			withAlias(t, s)
			kept := count(t, db, `SELECT COALESCE(MAX(id), 0) FROM revisions`)
			for i := range 5 {
				hears("before the failover", tunnel(100+i))
			}
			if _, err := db.Exec(fmt.Sprintf(`BEGIN; DELETE FROM revisions WHERE id > %[1]d;
				SELECT setval(pg_get_serial_sequence('revisions', 'id'), %[1]d);
				INSERT INTO revisions (at, origin, kind, alias_id, n, account_id, credential) SELECT g, 'other', 'tunnel', 200 + g, 0, 0, '' FROM generate_series(1, %[2]d) g;
				COMMIT`, kept, later)); err != nil {
				t.Fatal(err)
			}
			hears("that everything is to be read again", everything...)
			hears("after the failover", tunnel(300))
			mu.Lock()
			defer mu.Unlock()
			again := 0
			for _, c := range heard {
				if isStartOver(c) {
					again++
				}
			}
			if again != 1 {
				t.Errorf("everything was to be read again %d times", again)
			}
		})
	}
}

// isStartOver reports whether a change is the one of all aliases, by which a node that has noticed a failover tells that
// everything is to be read again. A node tells ChangeMissed for other reasons too, for example after a notice that it
// could not send or receive in time.
func isStartOver(c relay.Change) bool { return c.Kind == relay.ChangeAlias && c.Alias == 0 }

// A failover loses the last changes of a node, which does not read its own changes back. The node detects the
// failover nevertheless, whatever is written afterwards.
func TestOwnChangesAreLostByAFailover(t *testing.T) {
	t.Parallel()
	for name, instead := range map[string]int{"nothing instead": 0, "as many": 1, "more": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := store.Options{URL: schematest.URL(t), DataDir: t.TempDir(), Log: testLog(t)}
			s := mustOpen(t, o)
			if _, _, err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			var again atomic.Int64
			if err := s.Serve(t.Context(), func(list []relay.Change) {
				for _, c := range list {
					if isStartOver(c) {
						again.Add(1)
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			db := database(t, o)
			withAlias(t, s)
			time.Sleep(2 * time.Second) // the node has time to read the rows that this test has written
			if again.Load() > 0 {
				t.Error("its own changes count as lost")
			}
			kept := count(t, db, `SELECT MAX(id) FROM revisions`)
			if _, err := s.CreateAlias(t.Context(), relay.System(), "lost", "alice"); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(fmt.Sprintf(`BEGIN; DELETE FROM revisions WHERE id > %[1]d;
				SELECT setval(pg_get_serial_sequence('revisions', 'id'), %[1]d);
				INSERT INTO revisions (at, origin, kind, alias_id, n, account_id, credential) SELECT g, 'other', 'tunnel', 200 + g, 0, 0, '' FROM generate_series(1, %[2]d) g;
				COMMIT`, kept, instead)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "that everything is to be read again", func() bool { return again.Load() > 0 })
			time.Sleep(2 * time.Second)
			if n := again.Load(); n != 1 {
				t.Errorf("everything was to be read again %d times", n)
			}
		})
	}
}
