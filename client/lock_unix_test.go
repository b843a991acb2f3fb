//go:build unix

package client

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"relay/cli"
)

// TestLockOfAStoppedProgram: the wait for a lock is bounded if its holder is stopped, as after Ctrl+Z.
func TestLockOfAStoppedProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	called := false
	do := func() error {
		called = true
		return nil
	}
	var e *cli.Error
	if err := withLockTimeout(3*lockPause, dir, do); !errors.As(err, &e) || e.Exit != cli.ExitFailure || e.Hint == "" || called {
		t.Errorf("%v, called: %v", err, called)
	}
	released := make(chan struct{})
	time.AfterFunc(3*lockPause, func() { // the stopped program continues
		defer close(released)
		_ = unix.Flock(int(other.Fd()), unix.LOCK_UN)
	})
	if err := withLockTimeout(time.Minute, dir, do); err != nil || !called {
		t.Errorf("%v, called: %v", err, called)
	}
	<-released
}
