//go:build unix

package main

import (
	"io/fs"
	"os/user"
	"slices"
	"strconv"
	"syscall"
)

// ownerOf returns the id of the user that owns a file.
func ownerOf(info fs.FileInfo) (uid uint32, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return stat.Uid, true
}

// mayUse reports whether a user with these groups has the rights want on a file. want has the bits that the file
// mode uses for other users, such as 4 for reading.
func mayUse(info fs.FileInfo, want fs.FileMode, uid uint32, groups []uint32) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return true
	case stat.Uid == uid:
		want <<= 6
	case slices.Contains(groups, stat.Gid):
		want <<= 3
	}
	return info.Mode().Perm()&want == want
}

// groupsOf returns the groups of a user; none if the system does not know the user.
func groupsOf(uid uint32) (groups []uint32) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nil
	}
	ids, _ := u.GroupIds()
	for _, id := range ids {
		if gid, err := strconv.ParseUint(id, 10, 32); err == nil {
			groups = append(groups, uint32(gid))
		}
	}
	return groups
}
