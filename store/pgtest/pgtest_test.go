package pgtest_test

import (
	"database/sql"
	"testing"

	"relay/store/pgtest"
)

// Each URL is a schema of its own, empty.
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

// A server of its own comes back with its data after it was stopped.
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
