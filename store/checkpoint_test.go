package store

import (
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store/db"
)

// worthPages and longPages are copies of checkpointPages and walMaxPages in package db.
const (
	worthPages = 1000
	longPages  = 8000
)

type logState struct {
	Busy int `db:"busy"`
	Log  int `db:"log"`
	Done int `db:"checkpointed"`
}

// TestLogIsMovedBesideTheWriter: after 30 commits, the write-ahead log is checkpointed in the background. The
// writer itself checkpoints only a log of longPages pages or more.
func TestLogIsMovedBesideTheWriter(t *testing.T) {
	t.Parallel()
	s := figured(t, 1)
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	pages := strings.Repeat("x", 200_000)
	for range 30 { // each round writes some 50 pages
		if err := s.db.Update(t.Context(), "", func(c *db.Tx) error {
			_, err := c.Exec(`INSERT INTO meta (name, value) VALUES ('x', ?)
				ON CONFLICT (name) DO UPDATE SET value = excluded.value`, pages)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for late := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		var log logState
		if err := s.db.Read.Get(&log, `PRAGMA wal_checkpoint(NOOP)`); err != nil {
			t.Fatal(err)
		}
		if log.Log-log.Done < worthPages {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("the log was not moved: %+v", log)
		}
	}
	var last int
	if err := s.db.Write.Get(&last, `PRAGMA wal_autocheckpoint`); err != nil || last != longPages {
		t.Errorf("the writer moves the log from %d pages on, %v", last, err)
	}
}
