package link

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// unsentLimit bounds the unsent bytes in the kernel. The next write, such as a new request or a
// keepalive, is sent after these bytes. Without the limit they may be megabytes for a slow client.
const unsentLimit = 64 << 10

// tune sets unsentLimit, and userTimeout as the kernel's limit for the time without an acknowledgement,
// a second guard beside the stall time. It returns ack, which requests immediate acknowledgements, and
// unread, which reports whether bytes of the peer are unread; both are nil if c is no TCP connection.
// The kernel forgets the request for acknowledgements, so ack is called after each read. Without ack,
// OpenSSH waits 40 ms within the handshake.
func tune(c net.Conn, userTimeout time.Duration) (ack func(), unread func() bool) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, nil
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
	})
	if userTimeout > 0 {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
		})
	}
	quick := func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
	}
	unread = func() bool {
		n, err := 0, error(nil)
		look := func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }
		return raw.Control(look) == nil && err == nil && n > 0
	}
	return func() { _ = raw.Control(quick) }, unread
}
