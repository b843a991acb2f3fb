//go:build unix

package file

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lock takes a lock on the file, which ends at the latest with the process. If another process has the
// lock, Lock waits, or fails at once if wait is false.
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

// Unlock releases the lock and closes the file. Closing it is not enough: a child process that was just
// started has the file open until it runs its program, and would keep the lock.
func Unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// giveToOwner gives a new file of root to the owner of a folder. It ignores errors, because root may
// lack the right.
func giveToOwner(f *os.File, dir string) {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}

// ID returns a text that identifies a file on this machine.
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

// Inode returns a text that identifies a file on its disk: while a file exists or is open, a file that
// replaced it has another text. It returns "" if the text is not known. Inode does not open the file,
// because closing it again would end the locks that SQLite has on it in this process.
func Inode(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprint(st.Ino)
}

// FreeSpace returns the number of bytes that an unprivileged process may still write to the disk of dir.
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
