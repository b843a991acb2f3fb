package store_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"relay/store"
)

// TestFilesAreSynced traces the system calls that write files other than the database. Each file is
// synced before its folder is, and a file that replaces another is synced before the rename.
func TestFilesAreSynced(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("RELAY_TEST_SYNC"); dir != "" { // true in the child process that is traced
		kept := store.WriteFile(filepath.Join(dir, "kept"), []byte("x"))
		if err := store.QuarantineOne(dir); err != nil || kept != nil {
			t.Fatal(kept, err)
		}
		return
	}
	dir := t.TempDir()
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-qq", "-y", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", "-o", trace, os.Args[0], "-test.run=^TestFilesAreSynced$")
	cmd.Env = append(os.Environ(), "RELAY_TEST_SYNC="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.QuoteMeta(dir)
	for what, order := range map[string]string{
		"a file that replaces another": `sync\(\d+<` + at + `/kept\.part>(.|\n)*rename[at2]*\([^\n]*` + at + `/kept"(.|\n)*sync\(\d+<` + at + `>`,
		"the refused steps":            `sync\(\d+<` + at + `/spool-refused\.jsonl>(.|\n)*sync\(\d+<` + at + `>`,
	} {
		if !regexp.MustCompile(order).Match(calls) {
			t.Errorf("%s: %s", what, calls)
		}
	}
}
