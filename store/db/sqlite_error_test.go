package db

import (
	"path/filepath"
	"testing"

	"relay"
	"relay/store/file"
)

// TestLockedFileIsUnavailable: if another connection holds the lock of the writer, the error of a transaction
// counts as store-unavailable, and not as an error of its statement.
func TestLockedFileIsUnavailable(t *testing.T) {
	t.Parallel()
	db, err := file.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "relay.db"), 2, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
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
