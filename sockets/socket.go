// Package sockets has helpers for sockets and for the addresses of their peers. Package net has no
// such functions.
package sockets

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Accept returns the next connection of a listener. It returns an error only after the listener was
// closed. After any other error, usually a shortage of descriptors or memory, it calls failed and
// tries again after a pause.
func Accept(ln net.Listener, failed func(err error, pause time.Duration)) (net.Conn, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		c, err := ln.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		failed(err, pause)
		time.Sleep(pause)
	}
}

// KernelConn returns the innermost connection below wrappers that have a method NetConn, such as the
// reader of a proxy header.
func KernelConn(c net.Conn) net.Conn {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = outer.NetConn()
	}
}

// HalfClose closes the sending side of a connection; the receiving side stays open.
func HalfClose(c net.Conn) error {
	if half, ok := KernelConn(c).(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetLinger sets SO_LINGER if the connection supports it. With 0 s, closing the connection sends a
// reset.
func SetLinger(c net.Conn, seconds int) {
	if l, ok := KernelConn(c).(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(seconds)
	}
}

// discardPiece is the number of bytes that Discard reads under one deadline.
const discardPiece = 16 << 10

// Discard reads and drops the remaining input of a half-closed connection before it is closed. Closing a
// connection with unread bytes resets it (RFC 1122, section 4.2.2.13), and its peer may lose the last written
// bytes. Discard returns nil when the peer has closed its side, or when it has read as many bytes as the
// parameter most says. It returns an error at the deadline, which depends on the number of bytes read so far.
func Discard(c net.Conn, most int64, deadline func(read int64) time.Time) error {
	for read := int64(0); read < most; {
		_ = c.SetReadDeadline(deadline(read))
		n, err := io.CopyN(io.Discard, c, discardPiece)
		read += n
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// AddrOf returns the IP address and port of a TCP address; the zero value for any other address.
func AddrOf(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// SourceOf returns the network that counts as one source of connections: an IPv4 address or an IPv6
// /64. Other addresses have the zero value.
func SourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// IsLoopback reports whether a host, in lower case and without brackets, is localhost (RFC 6761,
// section 6.3) or a loopback address.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// ContainsAddr reports whether an address is in one of the networks, whatever its zone.
func ContainsAddr(networks []netip.Prefix, a netip.Addr) bool {
	a = a.WithZone("") // networks have no zone
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}
