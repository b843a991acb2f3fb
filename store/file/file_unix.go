//go:build unix

package file

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lock takes the lock that dies with the process. Unless it may wait it fails at
// once when another process has it.
func Lock(f *os.File, wait bool) error {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// Unlock releases the lock and closes the file. A child process that was started meanwhile has
// the file too until it runs its program, and would keep the lock if the file were only closed.
func Unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// giveToOwner gives a new file of root to the owner of a folder; best effort, because root may
// lack the right to do that.
func giveToOwner(f *os.File, dir string) {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}

// ID names a file on this machine.
func ID(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d/%d", st.Dev, st.Ino)
}

// FreeSpace returns what an unprivileged process may still write to the disk of dir.
func FreeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			return int64(st.Bavail) * int64(st.Bsize), nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}
