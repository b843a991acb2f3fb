//go:build unix

package store

import "golang.org/x/sys/unix"

// freeSpace is what an unprivileged process may still write to the disk of dir.
func freeSpace(dir string) (int64, error) {
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
