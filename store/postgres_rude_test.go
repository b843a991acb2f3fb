//go:build unix

package store_test

import (
	"database/sql"
	"path/filepath"
	"testing"
)

func do(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// If Postgres refuses steps because a table is missing, they wait in the spool until the table is
// back. None of these steps is dropped, and no caller is refused.
func TestTableThatIsAway(t *testing.T) {
	t.Parallel()
	s, _, o := spooling(t, 64<<20)
	alias, db := withAlias(t, s), database(t, o)
	var l ledger
	do(t, db, `ALTER TABLE events RENAME TO elsewhere`)
	for range 20 {
		if err := l.ask(s, alias); err != nil {
			t.Fatal(err)
		}
	}
	do(t, db, `ALTER TABLE elsewhere RENAME TO events`)
	backInService(t, s)
	if n := l.missing(t, s); n > 0 {
		t.Errorf("%d of %d are missing", n, len(l.answered))
	}
	if left, _ := filepath.Glob(filepath.Join(o.DataDir, "*refused*")); len(left) > 0 {
		t.Errorf("given up: %v", left)
	}
}
