//go:build unix

package cluster

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLockBesideAChildThatStarts: a child process has copies of all open files until it runs its program. Here
// a second descriptor stands for the copy of the lock file. The next server of the data dir can start
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

// TestLockBesideCommands: a server that starts gets the lock, although commands look at the same time whether a
// server has it.
func TestLockBesideCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	command := openCluster(t, dir)
	first := openCluster(t, dir) // creates the lock file
	if err := errors.Join(first.LockDataDir(), first.UnlockDataDir()); err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
				_, _ = command.Served()
			}
		}
	}()
	defer func() { close(done); <-ended }()
	for range 20 {
		s := openCluster(t, dir)
		if err := errors.Join(s.LockDataDir(), s.UnlockDataDir()); err != nil {
			t.Fatal(err)
		}
	}
}
