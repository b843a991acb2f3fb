package retention

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/usage"
)

// Commits of a new connection wait for the disk. Deletes do not. Commits of the journal after them do, even after a
// failed delete.
func TestDeletesLeaveTheWriterDurable(t *testing.T) {
	t.Parallel()
	const normal, full = 1, 2
	s := open(t, "", usage.Options{})
	var before int
	if err := s.db.Write.Get(&before, `PRAGMA synchronous`); err != nil || before != full {
		t.Errorf("a new connection has synchronous %d, want %d: %v", before, full, err)
	}
	mine := errors.New("mine")
	for name, fn := range map[string]func(*testing.T, *db.Tx, context.CancelFunc) error{
		"done":  func(*testing.T, *db.Tx, context.CancelFunc) error { return nil },
		"fails": func(*testing.T, *db.Tx, context.CancelFunc) error { return mine },
		"fails in a statement": func(_ *testing.T, c *db.Tx, _ context.CancelFunc) error {
			if _, err := c.Exec(`DELETE FROM audit`); err != nil {
				return err
			}
			_, err := c.Exec(`DELETE FROM nowhere`)
			return err
		},
		"the engine rolls back": func(_ *testing.T, c *db.Tx, _ context.CancelFunc) error {
			_, err := c.Exec(`ROLLBACK`)
			return err
		},
		"its caller leaves": func(_ *testing.T, _ *db.Tx, leave context.CancelFunc) error { leave(); return nil },
		"panics": func(_ *testing.T, c *db.Tx, _ context.CancelFunc) error {
			_, _ = c.Exec(`DELETE FROM audit`)
			panic(mine)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			during, behind := 0, 0
			func() {
				defer func() { _ = recover() }()
				_ = s.pacedUpdate(ctx, "", func(c *db.Tx, _ int) error {
					if err := c.Get(&during, `PRAGMA synchronous`); err != nil {
						t.Error(err)
					}
					return fn(t, c, leave)
				})
			}()
			// There is only one writing connection, so the next commit uses the connection that is read here.
			if err := s.db.Write.Get(&behind, `PRAGMA synchronous`); err != nil {
				t.Fatal(err)
			}
			if during != normal || behind != full {
				t.Errorf("synchronous is %d during it and %d behind it", during, behind)
			}
			if err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
				_, err := c.Exec(`INSERT INTO meta (name, value) VALUES ('x', '') ON CONFLICT DO NOTHING`)
				return errors.Join(err, c.Get(&behind, `PRAGMA synchronous`))
			}); err != nil || behind != full {
				t.Errorf("the next commit: %v, synchronous %d", err, behind)
			}
		})
	}
}

// Parts without an event are removed when their id is a day old. Younger parts stay, because their event may
// still arrive.
func TestOrphansAreSwept(t *testing.T) {
	t.Parallel()
	s := open(t, "", usage.Options{})
	now := time.Now()
	for _, ago := range []time.Duration{25 * time.Hour, 100 * time.Hour, 23 * time.Hour} {
		if err := s.db.Execute(t.Context(), "", `INSERT INTO body_chunks (event_id, n, i, data) VALUES (?, 0, 0, ?)`, events.LowestID(now.Add(-ago)), []byte("left")); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{2, 0} {
		if n, err := s.SweepOrphans(t.Context(), now); err != nil || n != want {
			t.Errorf("swept %d, want %d (%v)", n, want, err)
		}
	}
	var left []relay.ID
	if err := s.db.Read.Select(&left, `SELECT event_id FROM body_chunks`); err != nil || len(left) != 1 || left[0] != events.LowestID(now.Add(-23*time.Hour)) {
		t.Errorf("left are %v (%v)", left, err)
	}
}

// A file without auto_vacuum, such as one that was rebuilt by hand, returns no pages to the disk. The
// round of retention still ends.
func TestVacuumEndsWithoutAutoVacuum(t *testing.T) {
	t.Parallel()
	s := open(t, "", usage.Options{})
	for _, statement := range []string{`PRAGMA auto_vacuum = NONE`, `VACUUM`} {
		if _, err := s.db.Write.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	large := make([]byte, 3*freePages/2*4096)
	if _, err := s.db.Write.Exec(`INSERT INTO body_chunks (event_id, n, i, data) VALUES (?, 0, 0, ?)`, large[:16], large); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Write.Exec(`DELETE FROM body_chunks`); err != nil {
		t.Fatal(err)
	}
	var free int
	if err := s.db.Read.Get(&free, `PRAGMA freelist_count`); err != nil || free <= freePages+freePages/4 {
		t.Fatalf("%d pages are free, %v: nothing is tested", free, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.vacuum(ctx); err != nil {
		t.Error(err)
	}
}

// The check of an alias is due once in an interval, and at once if the alias gets another retention. forget
// drops aliases that are no longer checked.
func TestAliasesAreForgotten(t *testing.T) {
	t.Parallel()
	now, p := time.Now(), schedule{}
	if !p.due(now, 1, time.Hour) || p.due(now, 1, time.Hour) || !p.due(now, 1, 2*time.Hour) {
		t.Error("when an alias is due")
	}
	for range 5 {
		now = now.Add(maxRetentionInterval)
		p.due(now, 2, time.Hour)
		p.forget(now)
	}
	if _, there := p[2]; len(p) != 1 || !there {
		t.Errorf("planned are %v", p)
	}
}

// A removal does not checkpoint a long write-ahead log during its commit, while every caller waits for the
// writer. It does so after the commit, because otherwise the log grows without limit if nothing else is
// written.
func TestRemovalMovesTheLogBehindItself(t *testing.T) {
	t.Parallel()
	const longLog = 8000              // number of pages in the log from which the writer itself checkpoints, as in package db
	s := open(t, "", usage.Options{}) // no other goroutine checkpoints the log
	if _, err := s.removalTx(t.Context(), "", func(c *db.Tx, _ int) error {
		_, err := c.Exec(`INSERT INTO meta (name, value) VALUES ('y', ?)`, strings.Repeat("x", (longLog+100)<<12))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	type logState struct {
		Busy int `db:"busy"`
		Log  int `db:"log"`
		Done int `db:"checkpointed"`
	}
	state := func() (log logState) {
		if err := s.db.Read.Get(&log, `PRAGMA wal_checkpoint(NOOP)`); err != nil {
			t.Fatal(err)
		}
		return log
	}
	if before := state(); before.Log < longLog {
		t.Fatalf("the log is too short for this test: %+v", before)
	}
	remove := func(c *db.Tx, _ int) error {
		_, err := c.Exec(`DELETE FROM meta WHERE name = 'y'`)
		return err
	}
	if _, err := s.removalTx(t.Context(), "", remove); err != nil {
		t.Fatal(err)
	}
	if log := state(); log.Done > 0 {
		t.Errorf("moved in the commit of a removal: %+v", log)
	}
	if err := s.pacedUpdate(t.Context(), "", remove); err != nil {
		t.Fatal(err)
	}
	if log := state(); log.Log > log.Done {
		t.Errorf("not moved behind a removal: %+v", log)
	}
}
