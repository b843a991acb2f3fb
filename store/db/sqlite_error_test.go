package db

import (
	"path/filepath"
	"testing"

	"relay"
	"relay/store/file"
)

// TestLockedFileIsUnavailable: if another connection holds the lock of the writer, the error of a transaction
// counts as store-unavailable, and not as an error of its statement. The transaction waits for the lock for less than
// the 5 s within which its caller must get an answer.
func TestLockedFileIsUnavailable(t *testing.T) {
	t.Parallel()
	db, err := file.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "relay.db"), 2, []string{file.BusyTimeout}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	var wait int // ms
	if err := db.Get(&wait, `PRAGMA busy_timeout`); err != nil || wait >= 5000 {
		t.Errorf("a transaction waits for the lock for %d ms: %v", wait, err)
	}
	first, err := db.Begin() // takes the lock of the writer
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Rollback() }()
	_, err = db.Begin()
	if code := Unavailable(err); code != relay.CodeStoreUnavailable {
		t.Errorf("%v has the code %q", err, code)
	}
}
