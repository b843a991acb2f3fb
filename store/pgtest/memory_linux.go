package pgtest

import "syscall"

// memory is the file system in memory of a Linux system.
const memory = "/dev/shm"

// memoryNeeded is the free space that memory must have, because several servers run at the same time.
const memoryNeeded = 4 << 30

// temporary returns the folder for the data of a server whose speed is not measured: memory, if it has enough
// free space. A cluster has a thousand small files and each schema some hundred more. Creating and deleting them
// takes several times as long on a disk: a new file of ext4 takes no inode of a file that was deleted in the last
// minutes, so after the end of a few servers, each new file searches thousands of inodes. The data in memory
// survive a kill of the server, as those on a disk do.
func temporary() string {
	var st syscall.Statfs_t
	if syscall.Statfs(memory, &st) == nil && st.Bavail*uint64(st.Bsize) >= memoryNeeded {
		return memory
	}
	return "/tmp"
}
