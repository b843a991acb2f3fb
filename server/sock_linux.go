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
	tcpClosed    = 7 // the peer has reset the connection, or the system has given it up
	tcpCloseWait = 8 // the peer has sent FIN
)

// peer is the other end of a socket, as the system knows it. Only one goroutine may use it at a time.
// ask is made once for a connection, so that the query for each request allocates nothing.
type peer struct {
	raw   syscall.RawConn // nil = the connection is no TCP socket
	ask   func(fd uintptr)
	start int // the first four bytes of TCP_INFO; a buffer for all 232 would be allocated for each request
	err   error
}

func newPeer(c net.Conn) *peer {
	p := &peer{}
	if s, ok := sockets.KernelConn(c).(*net.TCPConn); ok {
		p.raw, _ = s.SyscallConn()
	}
	p.ask = func(fd uintptr) { p.start, p.err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }
	return p
}

// presence asks the system for the state of the peer without reading, so that bytes
// that were received before a FIN stay unread.
func (p *peer) presence() relay.Presence {
	if p.raw == nil || p.raw.Control(p.ask) != nil || p.err != nil {
		return relay.CallerPresent
	}
	var info [4]byte
	binary.NativeEndian.PutUint32(info[:], uint32(p.start))
	switch info[0] {
	case tcpClosed:
		return relay.CallerReset
	case tcpCloseWait:
		return relay.CallerHalfClosed
	}
	return relay.CallerPresent
}

// roundTrip returns an upper estimate of the round-trip time to the peer, from the measurements of the
// system; 0 = unknown.
func (p *peer) roundTrip() (d time.Duration) {
	if p.raw == nil {
		return 0
	}
	_ = p.raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			d = time.Duration(info.Rtt+4*info.Rttvar) * time.Microsecond
		}
	})
	return d
}

// unsentLimit is the number of bytes that the system accepts beyond those it can send at once. The
// default is the whole send buffer, of up to several MiB: with it a waiting write continues only after
// a third of the buffer was sent, and a slow reader looks like one that does not read.
const unsentLimit = 64 << 10

// limitUnsent sets TCP_NOTSENT_LOWAT to unsentLimit, if the connection is a TCP socket.
func (p *peer) limitUnsent() {
	if p.raw != nil {
		_ = p.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
		})
	}
}
