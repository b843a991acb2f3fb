package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay"
)

// TestDoctorSpool: doctor reports events in the spool that are not in Postgres yet, with advice, even if the
// settings name another store by now.
func TestDoctorSpool(t *testing.T) {
	t.Parallel()
	const url = "postgres://localhost/relay"
	for _, tc := range []struct {
		name, url     string
		limit         int64
		files         map[string]int
		verdict, says string
	}{
		{"none on SQLite", "", 1 << 20, nil, "", ""},
		{"none", url, 1 << 20, nil, relay.VerdictOK, "nothing waits"},
		{"some", url, 1 << 20, map[string]int{"spool.db": 2048}, relay.VerdictWarn, "2.1 KiB of events wait"},
		{"without a limit", url, 0, map[string]int{"spool.db": 2048}, relay.VerdictWarn, "2.1 KiB of events wait"},
		{"full", url, 4096, map[string]int{"spool.db": 3072}, relay.VerdictFail, "callers get 503"},
		{"unreadable", url, 1 << 20, map[string]int{"spool.db/x": 0}, relay.VerdictFail, "cannot be read"},
		{"another store now", "", 1 << 20, map[string]int{"spool.db": 20}, relay.VerdictFail, "the store is SQLite now"},
		{"damaged", url, 1 << 20, map[string]int{"spool-0000000001-000000.damaged": 20, "spool-refused.jsonl": 20}, relay.VerdictWarn, "2 files of the spool"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{DataDir: t.TempDir(), DatabaseURL: tc.url, SpoolLimit: tc.limit}
			for name, size := range tc.files {
				path := filepath.Join(cfg.DataDir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if name == "spool.db" {
					spoolOf(t, path, size)
				} else if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			list := checkSpool(cfg)
			if tc.verdict == "" {
				if len(list) > 0 {
					t.Errorf("got %+v", list)
				}
				return
			}
			if len(list) != 1 || list[0].Verdict != tc.verdict || !strings.Contains(list[0].Reason, tc.says) || (list[0].Fix == "") != (tc.verdict == relay.VerdictOK) {
				t.Errorf("got %+v", list)
			}
		})
	}
}

// spoolOf makes a spool with one step of the given size.
func spoolOf(t *testing.T, path string, size int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err == nil {
		_, err = db.Exec(`CREATE TABLE steps (seq INTEGER PRIMARY KEY, data BLOB); INSERT INTO steps (data) VALUES (ZEROBLOB(?))`, size)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// waiting is a store with one alias and a queue, for checkQueues.
type waiting struct {
	stats relay.QueueStats
	own   *int64
	err   error
}

func (w waiting) Aliases(context.Context, relay.Actor) ([]relay.Alias, error) {
	return []relay.Alias{{ID: 7, Name: "shop", OwnerName: "alice", OwnerMaxQueue: w.own}}, w.err
}

func (w waiting) AllQueueStats(context.Context) (map[int64]relay.QueueStats, error) {
	return map[int64]relay.QueueStats{7: w.stats}, nil
}

// TestDoctorQueues: doctor reports a queue that is nearly full, and one that is full.
func TestDoctorQueues(t *testing.T) {
	t.Parallel()
	cfg, own := Config{QueueLimit: 10, QueueBytes: 1000}, int64(5)
	byAccount := Config{QueueLimit: 10, MaxAccountQueue: 3}
	for _, tc := range []struct {
		name          string
		s             waiting
		cfg           Config
		verdict, says string
	}{
		{"empty", waiting{}, cfg, relay.VerdictOK, "nothing waits"},
		{"some", waiting{stats: relay.QueueStats{Queued: 3}}, cfg, relay.VerdictOK, "3 attempts waiting at 1 alias,"},
		{"many", waiting{stats: relay.QueueStats{Queued: 8}}, cfg, relay.VerdictWarn, "queue of shop is nearly full"},
		{"large", waiting{stats: relay.QueueStats{Queued: 1, QueuedBytes: 800}}, cfg, relay.VerdictWarn, "queue of shop is nearly full"},
		{"full", waiting{stats: relay.QueueStats{Queued: 10}}, cfg, relay.VerdictFail, "callers get 503"},
		{"full account", waiting{stats: relay.QueueStats{Queued: 3}}, byAccount, relay.VerdictFail, "queue of account alice is full"},
		{"filling account", waiting{stats: relay.QueueStats{Queued: 4}, own: &own}, byAccount, relay.VerdictWarn, "queue of account alice is nearly full"},
		{"account with its own limit", waiting{stats: relay.QueueStats{Queued: 3}, own: &own}, byAccount, relay.VerdictOK, "3 attempts waiting"},
		{"without limits", waiting{stats: relay.QueueStats{Queued: 1e6}}, Config{}, relay.VerdictOK, "1000000 attempts waiting"},
		{"unknown", waiting{err: errors.New("no answer")}, cfg, relay.VerdictFail, "no answer"},
	} {
		f := checkQueues(t.Context(), tc.s, tc.cfg)
		if f.Verdict != tc.verdict || !strings.Contains(f.Reason, tc.says) || (f.Fix == "") != (tc.verdict == relay.VerdictOK) {
			t.Errorf("%s: got %+v", tc.name, f)
		}
	}
}
