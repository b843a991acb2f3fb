//go:build unix

package client

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// locked does something to the files of a folder while no other process does. The
// folder is made when needed; the lock goes with its process.
func locked(dir string, do func() error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil && err != unix.ENOLCK && err != unix.ENOTSUP { // a file system without locks
		return err
	}
	return do()
}
