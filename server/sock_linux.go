package server

import (
	"encoding/binary"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"relay"
	"relay/sockets"
)

// States of a socket in TCP_INFO (RFC 9293, section 3.3.2).
const (
	tcpClosed    = 7 // reset by the peer, or given up
	tcpCloseWait = 8 // the peer has sent FIN
)

// presence asks the system for the state of the peer without reading, so that bytes
// that were received before a FIN stay unread.
func presence(c syscall.Conn) relay.Presence {
	raw, err := c.SyscallConn()
	if err != nil {
		return relay.CallerPresent
	}
	var start int // the first bytes of TCP_INFO: all 232 would be allocated for each request
	asked := raw.Control(func(fd uintptr) { start, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if asked != nil || err != nil {
		return relay.CallerPresent
	}
	switch binary.NativeEndian.AppendUint32(nil, uint32(start))[0] { // the state
	case tcpClosed:
		return relay.CallerReset
	case tcpCloseWait:
		return relay.CallerHalfClosed
	}
	return relay.CallerPresent
}

// roundTrip returns the system's estimate of the round-trip time to the peer.
func roundTrip(c syscall.Conn) (d time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			d = time.Duration(info.Rtt+4*info.Rttvar) * time.Microsecond
		}
	})
	return d
}

// unsentLimit is the number of bytes that the system accepts beyond those it can send at once. The
// default is the whole send buffer, of up to several MiB: a waiting write would continue only after a
// third of it was sent, and a slow reader would look like one that does not read.
const unsentLimit = 64 << 10

// limitUnsent sets TCP_NOTSENT_LOWAT to unsentLimit, if c is a TCP socket.
func limitUnsent(c net.Conn) {
	t, ok := sockets.KernelConn(c).(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := t.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
		})
	}
}
