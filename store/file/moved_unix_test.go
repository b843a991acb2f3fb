//go:build unix

package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConnectionsToOneFile: after a file or its folder was moved away, or the file was replaced, an open
// connection of the handle still works. The handle opens no new connection, unless the same file is in its
// place again.
func TestConnectionsToOneFile(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(dir string) error{
		"file":           func(dir string) error { return os.Rename(filepath.Join(dir, "x.db"), filepath.Join(dir, "old.db")) },
		"folder":         func(dir string) error { return os.Rename(dir, dir+".old") },
		"other file":     func(dir string) error { return replace(filepath.Join(dir, "x.db")) },
		"file and again": func(dir string) error { return os.Rename(filepath.Join(dir, "x.db"), filepath.Join(dir, "x.db")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			db, err := OpenSQLite(ctx, filepath.Join(dir, "x.db"), 2, []string{BusyTimeout, "journal_mode(WAL)"}, "")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			one, err := db.Connx(ctx)
			if err == nil {
				_, err = one.ExecContext(ctx, `CREATE TABLE t (n INTEGER)`)
			}
			if err = errors.Join(err, move(dir)); err != nil {
				t.Fatal(err)
			}
			if _, err := one.ExecContext(ctx, `INSERT INTO t VALUES (1)`); err != nil {
				t.Errorf("the connection that was there: %v", err)
			}
			two, err := db.Connx(ctx)
			if same := name == "file and again"; same != (err == nil) || !same && !strings.Contains(err.Error(), "was moved or replaced") {
				t.Errorf("a new connection: %v", err)
			}
			if err := one.Close(); err != nil {
				t.Error(err)
			}
			if two != nil {
				_ = two.Close()
			}
		})
	}
}

// replace puts another file in the place of the file at path.
func replace(path string) error {
	return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
}
