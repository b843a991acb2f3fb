package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"relay"
	"relay/store"
	"relay/store/pgtest"
)

func deaf([]relay.Change) {}

// mustOpen opens a store and closes it with the test.
func mustOpen(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mustServe(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s := mustOpen(t, o)
	if _, _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), deaf); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSQLiteSecondServer(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: t.TempDir()}
	first := mustServe(t, o)
	second := mustOpen(t, o)
	err := second.Serve(t.Context(), deaf)
	if err == nil || !strings.Contains(err.Error(), o.DataDir) || !strings.Contains(err.Error(), "already serves") {
		t.Fatalf("a second server got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Serve(t.Context(), deaf); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(second.Describe(), "sqlite ") {
		t.Error(second.Describe())
	}
}

func TestSQLiteNoCreate(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: filepath.Join(t.TempDir(), "none"), NoCreate: true}
	_, err := store.Open(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "no relay data in "+o.DataDir) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(o.DataDir); err == nil {
		t.Error("the data dir was made")
	}
}

func TestSQLiteFileIsPrivate(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: filepath.Join(t.TempDir(), "data")}
	mustServe(t, o)
	for _, name := range []string{"relay.db", "relay.db-wal", "node-id", "serve.lock"} {
		info, err := os.Stat(filepath.Join(o.DataDir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// The connection that writes has the settings that durability and removal depend on.
func TestSQLitePragmas(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: t.TempDir()}
	s := mustServe(t, o)
	for pragma, want := range map[string]string{"journal_mode": "wal", "auto_vacuum": "2", "synchronous": "2", "foreign_keys": "1", "query_only": "0"} {
		if got, err := s.WriterPragma(t.Context(), pragma); err != nil || got != want {
			t.Errorf("%s is %s, want %s (%v)", pragma, got, want, err)
		}
	}
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	for name, o := range engines(t) {
		s := mustServe(t, o)
		have, want, err := s.Schema(t.Context())
		if err != nil || have != want || have == 0 {
			t.Fatalf("%s: schema %d of %d, %v", name, have, want, err)
		}
		if _, err := database(t, o).Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := store.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "newer relayd") {
			t.Errorf("%s: a newer schema gave %v", name, err)
		}
		if _, _, err := s.Migrate(t.Context()); err == nil {
			t.Errorf("%s: a newer schema was migrated", name)
		}
	}
}

// Several processes that start at once apply each migration once.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]store.Options{
		"sqlite": {DataDir: t.TempDir()}, "postgres": {URL: pgtest.URL(t), DataDir: t.TempDir()},
	} {
		var wg sync.WaitGroup
		var told atomic.Int32
		for range 4 {
			s := mustOpen(t, o)
			wg.Go(func() {
				from, to, err := s.Migrate(t.Context())
				if err != nil || to == 0 {
					t.Errorf("%s: migrated to %d, %v", name, to, err)
				}
				if from != to {
					told.Add(1)
				}
			})
		}
		wg.Wait()
		if n := told.Load(); n != 1 {
			t.Errorf("%s: %d say that they migrated", name, n)
		}
	}
}

func TestUnknownURL(t *testing.T) {
	t.Parallel()
	_, err := store.Open(t.Context(), store.Options{URL: "mysql://user:hunter2@host/db", DataDir: t.TempDir()})
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "postgres://") {
		t.Errorf("got %v", err)
	}
}

// Closing a store deletes the write-ahead log. SQLite does this when the last connection is closed; a statement
// that is still open would keep that connection open.
func TestCloseDeletesTheLog(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: t.TempDir()}
	s := mustServe(t, o)
	stored(t, s, eventAt(s, withAlias(t, s), s.NewID().Time(), relay.StateDelivering, "body"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(o.DataDir, "relay.db-wal")); !os.IsNotExist(err) {
		t.Errorf("the log is still there: %v", err)
	}
}
