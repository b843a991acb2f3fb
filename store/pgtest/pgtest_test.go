package pgtest_test

import (
	"database/sql"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"relay/store/pgtest"
)

// Each URL has its own empty schema.
func TestOwnSchema(t *testing.T) {
	t.Parallel()
	for range 2 {
		db, err := sql.Open("postgres", pgtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if _, err := db.Exec(`CREATE TABLE here (id int)`); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSchemaWhoseDropMeetsADeadlock: a test does not fail if its schema is dropped while another session waits for
// a table that the drop has locked.
func TestSchemaWhoseDropMeetsADeadlock(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	t.Run("a test with a session that goes on", func(t *testing.T) {
		db, err := sql.Open("postgres", pgtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			`CREATE TABLE a (id int)`, `CREATE TABLE b (id int)`, `COMMIT`,
			`BEGIN`, `SET LOCAL deadlock_timeout = '1min'`, `LOCK TABLE b`, // the drop notices the deadlock first
		} {
			if _, err := tx.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			defer func() { _ = db.Close() }()
			for waits := 0; waits == 0; <-time.After(10 * time.Millisecond) {
				if err := tx.QueryRow(`SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'b'::regclass`).Scan(&waits); err != nil {
					ended <- err
					return
				}
			}
			_, err := tx.Exec(`LOCK TABLE a`)
			ended <- errors.Join(err, tx.Rollback())
		}()
	})
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The data of a server that a test has started are still there after a stop and a restart.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	db, err := sql.Open("postgres", s.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Exec(`CREATE TABLE here (id int)`); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO here VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	if pid, err := s.PID(); err != nil || pid == 0 {
		t.Fatalf("pid %d, %v", pid, err)
	}
}

// A killed server has its committed data after a restart; a frozen server continues after the thaw.
func TestKillAndFreeze(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{Fsync: true})
	db, err := sql.Open("postgres", s.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Exec(`CREATE TABLE here (id int)`); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := db.Ping(); err == nil {
		t.Fatal("a killed server answers")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := db.Exec(`INSERT INTO here VALUES (1)`)
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a frozen server answers: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the query that waited for a frozen server: %v", err)
	}
}

func TestProgram(t *testing.T) {
	if out, err := exec.Command(pgtest.Program(t, "pg_dump"), "--version").CombinedOutput(); err != nil {
		t.Errorf("pg_dump: %v %s", err, out)
	}
}

// The first cluster of a machine leaves a template, and the second one copies it. A machine without a
// cache folder runs initdb for each cluster.
func TestTemplate(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	for i := range 2 {
		db, err := sql.Open("postgres", pgtest.Start(t, pgtest.Options{}).URL(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if _, err := db.Exec(`CREATE TABLE here (id int)`); err != nil {
			t.Fatalf("cluster %d: %v", i, err)
		}
		if found, _ := filepath.Glob(filepath.Join(cache, "relay-tests", "*", "PG_VERSION")); len(found) != 1 {
			t.Fatalf("after cluster %d the cache has the templates %v, want one", i, found)
		}
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(pgtest.Program(t, "postgres"), "no folder"))
	pgtest.Start(t, pgtest.Options{})
}
