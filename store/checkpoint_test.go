package store

import (
	"strings"
	"testing"
	"time"

	"relay"
)

// The log goes into the file behind the commits, not in one of them; the writer does
// it only where nobody else could.
func TestLogIsMovedBesideTheWriter(t *testing.T) {
	t.Parallel()
	s := figured(t, 1)
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	pages := strings.Repeat("x", 200_000)
	for range 30 { // each some 50 pages
		if err := s.update(t.Context(), "", func(c *writeTx) error {
			_, err := c.exec(`INSERT INTO meta (name, value) VALUES ('x', ?)
				ON CONFLICT (name) DO UPDATE SET value = excluded.value`, pages)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for late := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		var log walState
		if err := s.read.Get(&log, `PRAGMA wal_checkpoint(NOOP)`); err != nil {
			t.Fatal(err)
		}
		if log.Log-log.Done < checkpointPages {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("the log was not moved: %+v", log)
		}
	}
	var last int
	if err := s.write.Get(&last, `PRAGMA wal_autocheckpoint`); err != nil || last != walMaxPages {
		t.Errorf("the writer moves the log from %d pages on, %v", last, err)
	}
}

// A removal carries no long log into the file at its commit, where every caller waits
// for the writer, but behind it; or the log would grow without an end where nobody else
// writes.
func TestRemovalMovesTheLogBehindItself(t *testing.T) {
	t.Parallel()
	s := figured(t, 1) // not served: nobody else moves the log
	if _, err := s.removalTx(t.Context(), "", func(c *writeTx, _ int) error {
		_, err := c.exec(`INSERT INTO meta (name, value) VALUES ('y', ?)`, strings.Repeat("x", (walMaxPages+100)<<12))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	state := func() (log walState) {
		if err := s.read.Get(&log, `PRAGMA wal_checkpoint(NOOP)`); err != nil {
			t.Fatal(err)
		}
		return log
	}
	if before := state(); before.Log < walMaxPages {
		t.Fatalf("the log is too short for this test: %+v", before)
	}
	remove := func(c *writeTx, _ int) error {
		_, err := c.exec(`DELETE FROM meta WHERE name = 'y'`)
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
