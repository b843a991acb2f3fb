package link

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLittleWaitsUnsent: while the peer reads nothing, at most four times unsentLimit bytes wait unsent in
// the kernel.
func TestLittleWaitsUnsent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	own, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := own.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// With a shorter stall time, the write could end before more than unsentLimit bytes wait.
	s := newSocket(own, 300*time.Millisecond, 0)
	defer s.Close(Unneeded)
	for piece := make([]byte, writePiece); err == nil; {
		_, err = sender{s}.Write(piece)
		var unsent int
		var failed error
		look := func(fd uintptr) { unsent, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) }
		// The failed write may have closed the socket already.
		if e := raw.Control(look); e == nil && failed != nil {
			t.Fatal(failed)
		}
		if unsent > 4*unsentLimit {
			t.Fatalf("%d bytes wait unsent", unsent)
		}
	}
}
