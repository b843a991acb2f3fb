package client

import (
	"io"
	"net"
	"strconv"
	"testing"
	"time"
)

// TestLoopbackIsDialedAtOnce: a loopback address is dialed without the poller, any other
// one and one that refuses is left to net.Dialer, and a half-closed connection still reads.
func TestLoopbackIsDialedAtOnce(t *testing.T) {
	refused, _ := refusingAddr(t)
	for _, addr := range []string{refused, "localhost:80", "192.0.2.1:80", "[fe80::1%lo]:80", "127.0.0.1"} {
		if conn := dialLoopback(addr); conn != nil {
			conn.Close()
			t.Errorf("%s was dialed", addr)
		}
	}
	ln, _ := newListener(t)
	conn := dialLoopback(ln.Addr().String())
	if conn == nil {
		t.Fatal("a listener on loopback was not dialed at once")
	}
	defer conn.Close()
	go func() {
		accepted, err := ln.Accept()
		if err != nil {
			return
		}
		defer accepted.Close()
		sent, _ := io.ReadAll(accepted)
		_, _ = accepted.Write(append(sent, " back"...))
	}()
	if _, err := conn.Write([]byte("there and")); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "there and back" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestPortOfAServerThatIsDownIsNotAnsweredByTheDialItself: a socket that dials a port without
// a listener, in the range that the kernel takes local ports from, may get that port for
// itself and is then connected to itself. Linux takes even ports first, one after the other,
// so that a number of dials tries all of them.
func TestPortOfAServerThatIsDownIsNotAnsweredByTheDialItself(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port &^ 1
	ln.Close()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for i := range 30000 {
		conn := dialLoopback(addr)
		if conn == nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second)) // another program may listen there meanwhile
		_, _ = conn.Write([]byte("echo"))
		got := make([]byte, 4)
		_, _ = io.ReadFull(conn, got)
		conn.Close()
		if string(got) == "echo" {
			t.Fatalf("dial %d of %s is answered by itself", i, addr)
		}
	}
}
