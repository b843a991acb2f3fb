package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store/convert"
	"relay/store/db"
	"relay/store/partition"
	"relay/store/pgtest"
)

// fillEveryTable inserts rows into each table of a SQLite store that a test copies. It makes the values from
// the types of the columns, so that it also fills the tables of later migrations.
func fillEveryTable(t *testing.T, s *Store) {
	t.Helper()
	var tables []string
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.db.Write.Select(&tables, `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'goose_db_version'`))
	days := []time.Time{time.Now(), time.Now().AddDate(0, 0, -40), time.Now().AddDate(1, 0, 0)} // the last day is in the future, as from a wrong clock
	must(s.db.Update(t.Context(), "fill", func(c *db.Tx) error {
		c.Do(`PRAGMA defer_foreign_keys = 1`)
		for _, table := range tables {
			var columns []struct{ Name, Type string }
			if err := c.All(&columns, `SELECT name, type FROM pragma_table_info(?)`, table); err != nil {
				return err
			}
			for i := range 7 {
				var names []string
				var values []any
				for _, column := range columns {
					id := s.NewID()
					first := lowestID(days[i%len(days)])
					copy(id[:6], first[:6])
					id[6+i] = byte(i)
					var value any
					switch column.Type {
					case "INTEGER":
						value = i + 1
					case "TEXT":
						value = fmt.Sprintf("%s %d \\ \t\n Žluťoučký 🐎", column.Name, i)
					case "BLOB":
						value = id[:]
					}
					names, values = append(names, `"`+column.Name+`"`), append(values, value)
				}
				c.Do(`INSERT INTO `+table+` (`+strings.Join(names, ", ")+`) VALUES (?`+strings.Repeat(`, ?`, len(names)-1)+`)`, values...)
			}
			if c.Err != nil {
				return fmt.Errorf("table %s: %w", table, c.Err)
			}
		}
		c.Do(`UPDATE accounts SET removed_at = 1 WHERE id > 1`)
		c.Do(`UPDATE sqlite_sequence SET seq = 900 WHERE name = 'aliases'`) // as if there had been aliases up to this id
		return c.Err
	}))
}

func lowestID(at time.Time) (id relay.ID) {
	day, _ := partition.Day(at).IDs()
	return day
}

// TestCopySQLite copies a store with rows in every table and interrupts the copy again and again, later each
// time. Migrate refuses an incomplete copy. At the end all rows are copied, and the files of the SQLite store
// are unchanged.
func TestCopySQLite(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	old := openMigrated(t, Options{DataDir: dir})
	fillEveryTable(t, old)
	saved := t.TempDir() // has the files as a killed server leaves them: the newest rows are in the write-ahead log
	for _, name := range []string{"relay.db", "relay.db-wal"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(saved, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	o := Options{URL: pgtest.URL(t), DataDir: saved}
	calls, reports := 0, 0
	var tables []*convert.Table
	for done := false; !done; calls++ {
		run, stop := context.WithCancel(ctx)
		at, seen := 1+calls*calls/3, 0
		s, err := Open(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		tables, err = s.copySQLite(run, convert.Options{BatchBytes: 1 << 20, BatchRows: 3, Report: func(convert.Table) {
			if seen++; seen == at {
				stop()
			}
			reports++
		}})
		stop()
		if done = err == nil; !done {
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("call %d: %v", calls, err)
			}
			if _, _, err := s.Migrate(ctx); !errors.Is(err, errUnfinished) {
				t.Errorf("call %d: a part of a store may be served: %v", calls, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if calls > 30 {
			t.Fatal("it never ends")
		}
	}
	t.Logf("%d calls, %d reports", calls, reports)
	s := openMigrated(t, o)
	for _, table := range tables {
		if table.Rows != 7 || len(table.SHA256) != 64 {
			t.Errorf("table %s: %d rows, hash %s", table.Name, table.Rows, table.SHA256)
		}
	}
	if len(tables) < 20 {
		t.Errorf("only %d tables", len(tables))
	}
	var next int64
	if err := s.db.Write.Get(&next, `INSERT INTO aliases (name, owner_id, created_at, offline_status, auto_deliver, host_header, forwarded, fresh_connections, paused)
		VALUES ('new', 1, 1, 202, 0, '', 0, 0, 0) RETURNING id`); err != nil || next != 901 {
		t.Errorf("the next alias has id %d: %v", next, err)
	}
	if days, err := partition.Days(s.db.Session(ctx, s.db.Slow)); err != nil || len(days) != 2 {
		t.Errorf("days: %v, %v", days, err)
	}
	for _, name := range []string{"relay.db", "relay.db-wal"} {
		before, _ := os.ReadFile(filepath.Join(dir, name))
		after, err := os.ReadFile(filepath.Join(saved, name))
		if err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
	if _, err := s.CopySQLite(ctx, func(CopiedTable) {}); err == nil || !strings.Contains(err.Error(), "needs an empty database") {
		t.Errorf("a second copy: %v", err)
	}
}

// A copy is refused while a server uses the SQLite store, if the database has other rows, and if the two schemas
// differ. Changes of the SQLite store between two parts of a copy are detected.
func TestCopyOfAnother(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	nothing := func(CopiedTable) {}
	fill := func(t *testing.T) (old, s *Store) {
		t.Helper()
		dir := t.TempDir()
		old = openMigrated(t, Options{DataDir: dir})
		fillEveryTable(t, old)
		s, err := Open(ctx, Options{URL: pgtest.URL(t), DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return old, s
	}
	for name, test := range map[string]struct {
		before func(t *testing.T, old, s *Store) error
		want   string
	}{
		"a server runs": {func(t *testing.T, old, _ *Store) error { return old.LockDataDir() }, "another relayd already serves"},
		"rows in the target": {func(t *testing.T, _, s *Store) error {
			_, _, err := s.db.Migrate(t.Context())
			return errors.Join(err, s.db.Execute(t.Context(), "fill", `INSERT INTO accounts (name, admin, created_at) VALUES ('a', 1, 1)`))
		}, "needs an empty database"},
		"older schema": {func(t *testing.T, old, _ *Store) error {
			return old.db.Execute(t.Context(), "age", `DELETE FROM goose_db_version WHERE version_id = (SELECT MAX(version_id) FROM goose_db_version)`)
		}, "run `relayd migrate` first"},
		"a table of one side": {func(t *testing.T, old, _ *Store) error {
			return old.db.Execute(t.Context(), "add", `CREATE TABLE zzz (a INTEGER PRIMARY KEY)`)
		}, "the tables of the two stores differ"},
		"a column of one side": {func(t *testing.T, old, _ *Store) error {
			return old.db.Execute(t.Context(), "add", `ALTER TABLE aliases ADD COLUMN zzz INTEGER`)
		}, "table aliases has"},
		"text that Postgres refuses": {func(t *testing.T, old, _ *Store) error {
			return old.db.Execute(t.Context(), "break", `UPDATE accounts SET name = 'a' || char(0) WHERE id = 1`)
		}, "copy table accounts"},
		"a change meanwhile": {func(t *testing.T, old, s *Store) error {
			run, stop := context.WithCancel(t.Context())
			_, err := s.CopySQLite(run, func(x CopiedTable) {
				if x.Name == "events" {
					stop()
				}
			})
			if err == nil {
				return errors.New("it was not broken off")
			}
			return old.db.Execute(t.Context(), "change", `UPDATE accounts SET name = 'other' WHERE id = 1`)
		}, "table accounts differs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, s := fill(t)
			if err := test.before(t, old, s); err != nil {
				t.Fatal(err)
			}
			if _, err := s.CopySQLite(t.Context(), nothing); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}
