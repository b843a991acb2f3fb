package client

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// dialLoopback connects to a literal loopback address without waiting. It returns nil when
// the address is another one or when the connection did not come about at once: the caller
// then dials as usual and gets the error. On loopback the handshake ends within connect(2),
// so neither a deadline nor the poller is needed. A request then costs relay up 7 to 9 µs of
// CPU less than by net.Dialer, a tenth of all (BenchmarkCompare).
func dialLoopback(addr string) localConn {
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !at.Addr().IsLoopback() || at.Addr().Zone() != "" {
		return nil
	}
	family, peer := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
	if at.Addr().Is4() {
		family, peer = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil
	}
	if err = unix.Connect(fd, peer); err == nil || err == unix.EINPROGRESS {
		_, err = unix.Getpeername(fd) // fails unless the handshake has ended well
	}
	if err != nil || selfConnected(fd, int(at.Port())) {
		_ = unix.Close(fd)
		return nil
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	return loopbackConn{os.NewFile(uintptr(fd), "tcp "+addr)}
}

// selfConnected reports whether a loopback socket that is connected to a port is connected to
// itself. The kernel may choose the port of a server that is down as the local port of the
// socket, and TCP then connects the socket with itself (simultaneous open, RFC 9293, section
// 3.5): the server would seem to answer with the bytes of the request.
func selfConnected(fd, port int) bool {
	switch local, _ := unix.Getsockname(fd); local := local.(type) {
	case *unix.SockaddrInet4:
		return local.Port == port
	case *unix.SockaddrInet6:
		return local.Port == port
	}
	return true // it cannot be told: net.Dialer dials again
}

// loopbackConn is a TCP connection on loopback.
type loopbackConn struct{ *os.File }

// CloseWrite ends the direction to the peer.
func (c loopbackConn) CloseWrite() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var shut error
	if err = raw.Control(func(fd uintptr) { shut = unix.Shutdown(int(fd), unix.SHUT_WR) }); err == nil {
		err = shut
	}
	return os.NewSyscallError("shutdown", err)
}
