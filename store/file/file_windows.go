package file

import (
	"os"

	"golang.org/x/sys/windows"
)

// Lock takes a lock on the file, which ends at the latest with the process. If another process has
// the lock, Lock waits, or fails at once if wait is false.
func Lock(f *os.File, wait bool) error {
	how := uint32(windows.LOCKFILE_EXCLUSIVE_LOCK)
	if !wait {
		how |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	return windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{})
}

// Unlock closes the file, which releases the lock.
func Unlock(f *os.File) error { return f.Close() }

// giveToOwner does nothing: files inherit the rights of their folder.
func giveToOwner(*os.File, string) {}

// ID returns "", which stands for an unknown text.
func ID(*os.File) string { return "" }

// Inode returns "", which stands for an unknown text. Windows needs no such text, because it does not let any
// process replace an open file.
func Inode(string) string { return "" }

// FreeSpace returns the number of bytes that this process may still write to the disk of dir.
func FreeSpace(dir string) (int64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, err
	}
	return int64(free), nil
}
