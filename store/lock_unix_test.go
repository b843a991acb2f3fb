//go:build unix

package store

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLockBesideAChildThatStarts: until it runs its program, a child process has all files of
// this process, like the second descriptor here. The next server of the data dir starts all
// the same.
func TestLockBesideAChildThatStarts(t *testing.T) {
	t.Parallel()
	o := Options{DataDir: t.TempDir()}
	s := openMigrated(t, o)
	if err := s.Claim(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(s.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	child := os.NewFile(uintptr(fd), serveLock)
	defer child.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openMigrated(t, o).Claim(); err != nil {
		t.Error(err)
	}
}
