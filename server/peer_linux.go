package server

import (
	"syscall"

	"golang.org/x/sys/unix"

	"relay"
)

// States of a socket as TCP_INFO gives them (RFC 9293, section 3.3.2).
const (
	tcpClosed    = 7 // reset by the peer, or given up
	tcpCloseWait = 8 // the peer has sent FIN
)

// presence asks the system what became of the peer, without reading: what was sent
// before a FIN or behind the request stays where it is.
func presence(c syscall.Conn) relay.Presence {
	raw, err := c.SyscallConn()
	if err != nil {
		return relay.CallerPresent
	}
	var info *unix.TCPInfo
	asked := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	switch {
	case asked != nil || err != nil:
	case info.State == tcpClosed:
		return relay.CallerReset
	case info.State == tcpCloseWait:
		return relay.CallerHalfClosed
	}
	return relay.CallerPresent
}
