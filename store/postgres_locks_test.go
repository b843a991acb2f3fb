package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"testing"
	"time"

	"relay"
	"relay/migrations"
)

// begun opens a transaction outside the store and runs the given statements in it.
func begun(t *testing.T, db *sql.DB, statements ...string) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	for _, statement := range statements {
		if _, err := tx.Exec(statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	return tx
}

// blocks reports whether a statement with the given beginning waits for a lock of tx.
func blocks(t *testing.T, db *sql.DB, tx *sql.Tx, statement string) bool {
	t.Helper()
	var pid, n int
	if err := tx.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) AND query LIKE $2`, pid, statement+"%").Scan(&n)
	return err == nil && n > 0
}

// An event whose replay begins while the event is being deleted is kept, and the delete returns conflict.
func TestDeleteBesideAReplay(t *testing.T) {
	t.Parallel()
	o := engines(t)["postgres"]
	s := mustServe(t, o)
	id := stored(t, s, eventAt(s, withAlias(t, s), time.Now(), relay.StateDelivering, "x"))
	db := database(t, o)
	tx := begun(t, db, `UPDATE events SET attempts = attempts + 1, state = 1`,
		`INSERT INTO attempts SELECT event_id, n + 1, alias_id, 1, 1, received_at, started_at, 0, '', '', '', 0, 0, '', NULL, NULL, 0, 0, '',
			claim_node, claim_boot, bytes FROM attempts`)
	deleted := make(chan error, 1)
	go func() { deleted <- s.DeleteEvent(t.Context(), system, id) }()
	eventually(t, "the delete waits for the replay", func() bool { return blocks(t, db, tx, "SELECT 1 FROM events") || len(deleted) > 0 })
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	err := <-deleted
	if errors.Is(err, &relay.Error{Code: relay.CodeStoreUnavailable}) { // the delete waits for the lock for at most 2 s, so it is tried again
		err = s.DeleteEvent(t.Context(), system, id)
	}
	if !errors.Is(err, &relay.Error{Code: relay.CodeConflict}) || !there(t, s, id) {
		t.Errorf("an event under way was deleted: %v", err)
	}
	settled(t, s.Finish(id, answered(2, "x"), ""))
}

// If another transaction locks the oldest attempt of a queue, for example to remove its event, a
// claim waits for that attempt. The order is kept, and no attempt is skipped.
func TestNextWaitsForTheOldest(t *testing.T) {
	t.Parallel()
	o := engines(t)["postgres"]
	s := mustServe(t, o)
	alias, now := withAlias(t, s), time.Now()
	first := stored(t, s, eventAt(s, alias, now.Add(-time.Minute), relay.StateQueued, "x"))
	stored(t, s, eventAt(s, alias, now, relay.StateQueued, "x"))
	db := database(t, o)
	tx := begun(t, db, `SELECT 1 FROM events ORDER BY received_at LIMIT 1 FOR UPDATE`)
	type answer struct {
		claim *relay.Claim
		err   error
	}
	answers := make(chan answer, 1)
	next := func() {
		c, err := s.Next(relay.NextClaim{Alias: alias, Auto: true})
		answers <- answer{c, err}
	}
	go next()
	eventually(t, "the claim waits", func() bool {
		return blocks(t, db, tx, "SELECT 1 FROM events") || len(answers) > 0
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	got := <-answers
	if errors.Is(got.err, &relay.Error{Code: relay.CodeStoreUnavailable}) { // the claim waits for the lock for at most 2 s, so it is tried again
		next()
		got = <-answers
	}
	if got.err != nil || got.claim == nil || got.claim.Event.ID != first {
		t.Errorf("claimed %+v, %v, want the first", got.claim, got.err)
	}
}

// Closing a store cancels the count of stored bytes that runs in the background.
func TestCloseEndsTheCount(t *testing.T) {
	t.Parallel()
	o := engines(t)["postgres"]
	if err := mustServe(t, o).Close(); err != nil { // this start makes the partitions, which the lock below would prevent
		t.Fatal(err)
	}
	db := database(t, o)
	tx := begun(t, db, `LOCK TABLE payloads IN ACCESS EXCLUSIVE MODE`)
	o.MaxAliasStorage = 1 << 30
	s := mustServe(t, o)
	eventually(t, "the count waits", func() bool { return blocks(t, db, tx, "SELECT e.alias_id, CAST(SUM") })
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for the count")
		_ = tx.Rollback()
		<-closed
	}
}

// undoing has, for each kind of statement in a migration, the statement that undoes it.
var undoing = []struct {
	done *regexp.Regexp
	undo string
}{
	{regexp.MustCompile(`^ALTER TABLE (\w+) ADD COLUMN (\w+) .*`), `ALTER TABLE $1 DROP COLUMN $2`},
	{regexp.MustCompile(`^CREATE TABLE (\w+) .*`), `DROP TABLE $1`},
	{regexp.MustCompile(`^CREATE INDEX (\w+) .*`), `DROP INDEX $1`},
	{regexp.MustCompile(`^CREATE FUNCTION (\w+) .*`), `DROP FUNCTION $1`},
	{regexp.MustCompile(`^UPDATE .*`), `SELECT 1`}, // the new values may stay
}

// undone returns the statements that undo the migrations of Postgres from a version on.
func undone(t *testing.T, from int) (undo []string) {
	t.Helper()
	names, err := fs.Glob(migrations.Postgres(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names[from-1:] {
		text, err := fs.ReadFile(migrations.Postgres(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range regexp.MustCompile(`(?m)^[A-Z]+ .*`).FindAllString(string(text), -1) {
			before := len(undo)
			for _, kind := range undoing {
				if kind.done.MatchString(statement) {
					undo = append(undo, kind.done.ReplaceAllString(statement, kind.undo))
				}
			}
			if len(undo) == before {
				t.Fatalf("%s: the variable undoing has no line for %s", name, statement)
			}
		}
	}
	slices.Reverse(undo)
	return undo
}

// While a backup reads a table, the migration of a newer version waits for it. No other query waits for the
// migration.
func TestMigrationBesideALongReader(t *testing.T) {
	t.Parallel()
	o := engines(t)["postgres"]
	s := mustServe(t, o)
	alias, db := withAlias(t, s), database(t, o)
	older := begun(t, db, append(undone(t, 12), `DELETE FROM goose_db_version WHERE version_id >= 12`)...)
	if err := older.Commit(); err != nil {
		t.Fatal(err)
	}
	reader := begun(t, db, `SELECT COUNT(*) FROM events`)
	migrated, newer := make(chan error, 1), mustOpen(t, o)
	go func() {
		from, to, err := newer.Migrate(t.Context())
		if err == nil && (from != 11 || to < 12) {
			err = fmt.Errorf("migrated from %d to %d", from, to)
		}
		migrated <- err
	}()
	eventually(t, "the migration waits", func() bool { return blocks(t, db, reader, "ALTER TABLE") || len(migrated) > 0 })
	behind, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := db.ExecContext(behind, `SELECT COUNT(*) FROM events WHERE alias_id = $1`, alias); err != nil {
		t.Errorf("behind the migration: %v", err)
	}
	if len(migrated) > 0 {
		t.Fatal("the migration did not wait", <-migrated)
	}
	if err := reader.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
	settled(t, s.Accept(eventAt(s, alias, time.Now(), relay.StateDelivering, "x")))
}
