//go:build unix

package client

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"relay/cli"
)

// lockTimeout is the time to wait for other processes that change files of the directory. Such a change takes
// milliseconds, or seconds on a busy disk. lockPause is the time between two tries.
const lockTimeout, lockPause = time.Minute, 20 * time.Millisecond

// withLock calls do while no other process holds the lock of the directory. It creates the directory if
// necessary. The lock ends with its process. The wait is at most lockTimeout, because a process may be
// stopped while it holds the lock.
func withLock(dir string, do func() error) error { return withLockTimeout(lockTimeout, dir, do) }

func withLockTimeout(timeout time.Duration, dir string, do func() error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, ".lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	began := time.Now()
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil, err == unix.ENOLCK, errors.Is(err, errors.ErrUnsupported): // the last two: a file system without locks
			return do()
		case err != unix.EWOULDBLOCK && err != unix.EINTR:
			return &os.PathError{Op: "lock", Path: path, Err: err}
		case time.Since(began) >= timeout:
			return cli.Errorf(cli.ExitFailure, "another relay program holds %s", path).
				WithHint("is one stopped in another terminal? end it, or let it go on, and try again")
		}
		time.Sleep(lockPause)
	}
}
