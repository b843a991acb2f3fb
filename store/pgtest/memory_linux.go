package pgtest

import "syscall"

// memory is the file system in memory of a Linux system.
const memory = "/dev/shm"

// memoryNeeded is the free space that memory must have, because several servers run at the same time.
const memoryNeeded = 4 << 30

// temporary returns the folder for the data of a server that does not wait for the disk: memory, if it has
// enough free space. Each schema has some hundred small files, and creating and deleting them takes several
// times as long on a disk.
func temporary() string {
	var st syscall.Statfs_t
	if syscall.Statfs(memory, &st) == nil && st.Bavail*uint64(st.Bsize) >= memoryNeeded {
		return memory
	}
	return "/tmp"
}
