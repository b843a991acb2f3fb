package server

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unacked is how many bytes of what was written to a socket the peer's system has
// not confirmed (SIOCOUTQ of tcp(7)); ok is false where that cannot be known.
func unacked(c syscall.Conn) (n int, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	asked := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n, asked == nil && err == nil
}
