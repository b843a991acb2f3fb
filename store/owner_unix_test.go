//go:build unix

package store_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"relay/store"
)

// If an operator runs relayd migrate as root in a data dir of the service user, that user can open
// each file that the command creates.
func TestFilesBelongToTheOwnerOfTheDataDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const service = 4711
	if err := os.Chown(dir, service, service); err != nil {
		t.Logf("the test does not run as root, so that all files have one owner: %v", err)
	}
	owner := func(path string) uint32 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	s := mustOpen(t, store.Options{DataDir: dir})
	if _, _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.LockDataDir(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if got, want := owner(filepath.Join(dir, f.Name())), owner(dir); got != want {
			t.Errorf("%s belongs to user %d, its folder to %d", f.Name(), got, want)
		}
	}
}
