package store_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/store"
)

// killed returns the database file and the write-ahead log that a killed server leaves, and a backup of the
// store.
func killed(t *testing.T) (file, log, backup []byte) {
	t.Helper()
	o := store.Options{DataDir: t.TempDir()}
	s := mustServe(t, o)
	alias := withAlias(t, s)
	to := filepath.Join(t.TempDir(), "backup.db")
	if err := s.Backup(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	reader, err := database(t, o).BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Rollback() }()
	var aliases int
	if err := reader.QueryRow(`SELECT COUNT(*) FROM aliases`).Scan(&aliases); err != nil {
		t.Fatal(err)
	}
	// While this transaction reads, SQLite does not empty the log, so that the two files belong together, although the
	// store may checkpoint while they are copied.
	if _, err := capture(s, alias); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(name)
		if err != nil || len(b) == 0 {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
		return b
	}
	return read(filepath.Join(o.DataDir, "relay.db")), read(filepath.Join(o.DataDir, "relay.db-wal")), read(to)
}

// A backup beside the write-ahead log of a killed server is refused, because SQLite would apply that log to the
// backup. A write-ahead log without its database file is refused too, because SQLite would delete the log. The
// files of a killed server are opened normally.
func TestRestoreBesideAnotherLog(t *testing.T) {
	t.Parallel()
	file, log, backup := killed(t)
	for name, c := range map[string]struct {
		file, log []byte
		want      string
	}{
		"killed":         {file, log, ""},
		"restored":       {backup, nil, ""},
		"empty log":      {backup, []byte{}, ""},
		"over the old":   {backup, log, "the log of another database"},
		"file removed":   {nil, log, "may hold the newest events"},
		"file emptied":   {[]byte{}, log, "may hold the newest events"},
		"nothing at all": {nil, nil, "no relay data"},
	} {
		for _, beside := range []bool{true, false} {
			o := store.Options{DataDir: t.TempDir(), NoCreate: beside}
			for end, content := range map[string][]byte{"": c.file, "-wal": c.log} {
				if content == nil {
					continue
				}
				if err := os.WriteFile(filepath.Join(o.DataDir, "relay.db"+end), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := store.Open(t.Context(), o)
			if err == nil {
				err = s.Close()
			}
			want := c.want
			if name == "nothing at all" && !beside {
				want = "" // the server creates the missing file
			}
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, NoCreate %v: %v", name, beside, err)
			}
			if want == "" || name == "nothing at all" {
				continue
			}
			for end, content := range map[string][]byte{"": c.file, "-wal": c.log} {
				if now, err := os.ReadFile(filepath.Join(o.DataDir, "relay.db"+end)); content != nil && (err != nil || string(now) != string(content)) {
					t.Errorf("%s: relay.db%s was changed (%v)", name, end, err)
				}
			}
		}
	}
}

// The error for a file that cannot be opened says what to do.
func TestOpenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	o := store.Options{DataDir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(o.DataDir, "relay.db"), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("rubbish: %v", err)
	}
}
