package client

import (
	"io"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDialOfLoopback: dialLoopback connects to a listener on loopback, and the connection still reads after its
// CloseWrite. dialLoopback returns nil for every other address, and for one where nothing listens.
func TestDialOfLoopback(t *testing.T) {
	refused, _ := refusingAddr(t)
	for _, addr := range []string{refused, "localhost:80", "192.0.2.1:80", "[::1%lo]:80", "127.0.0.1", ""} {
		if conn := dialLoopback(addr); conn != nil {
			conn.Close()
			t.Errorf("%q: a connection", addr)
		}
	}
	ln, _ := newListener(t)
	conn := dialLoopback(ln.Addr().String())
	if conn == nil {
		t.Fatal("no connection to a listener")
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	echoed := make(chan error, 1)
	go func() {
		local, err := ln.Accept()
		if err == nil {
			defer local.Close()
			_, err = io.Copy(local, local)
		}
		echoed <- err
	}()
	if _, err := conn.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "request" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-echoed; err != nil {
		t.Error(err)
	}
}

// TestDialIsNotConnectedToItself dials a port where nothing listens until the kernel has chosen this port for
// the local end of a dial. Linux chooses even ports first and in turn, so one of 30,000 dials gets it.
func TestDialIsNotConnectedToItself(t *testing.T) {
	free := func() string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(ln.Addr().(*net.TCPAddr).Port&^1))
	}
	addr := free()
	for range 30000 {
		conn := dialLoopback(addr)
		if conn == nil {
			continue
		}
		if localAddr(t, conn.(loopbackConn)) == addr {
			t.Fatalf("a dial of %s was connected to itself", addr)
		}
		conn.Close()
		addr = free() // another program has begun to listen at the port
	}
}

// localAddr returns the local address of an IPv4 connection.
func localAddr(t *testing.T, c loopbackConn) string {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	addr := ""
	err = raw.Control(func(fd uintptr) {
		if local, err := unix.Getsockname(int(fd)); err == nil {
			local := local.(*unix.SockaddrInet4)
			addr = netip.AddrPortFrom(netip.AddrFrom4(local.Addr), uint16(local.Port)).String()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
