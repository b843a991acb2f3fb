//go:build unix

package spool

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// If an operator runs relayd once as root in a data dir of the service user, that user can open the
// spool and the list of refused steps.
func TestFilesBelongToTheOwnerOfTheDataDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const service = 4711
	if err := os.Chown(dir, service, service); err != nil {
		t.Logf("the test does not run as root, so that all files have one owner: %v", err)
	}
	p := spoolWithoutDatabase(t, dir, 8<<20)
	mustPut(t, p, chunkSteps(0, 1, 1<<10))
	if err := Quarantine(dir, []Refused{{}}); err != nil {
		t.Fatal(err)
	}
	owner := func(name string) uint32 {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	for _, name := range []string{fileName, fileName + "-wal", RefusedFile} {
		if got, want := owner(name), owner("."); got != want {
			t.Errorf("%s belongs to user %d, its folder to %d", name, got, want)
		}
	}
}
