//go:build unix

package cluster

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLockBesideAChildThatStarts: until it runs its program, a child process has all files of
// this process, like the second descriptor here. The next server of the data dir can start
// nevertheless.
func TestLockBesideAChildThatStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openCluster(t, dir)
	if err := s.LockDataDir(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(s.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	child := os.NewFile(uintptr(fd), serveLock)
	defer child.Close()
	if err := s.UnlockDataDir(); err != nil {
		t.Fatal(err)
	}
	if err := openCluster(t, dir).LockDataDir(); err != nil {
		t.Error(err)
	}
}
