package sshgate

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestLastBytesReachAPeerThatSends holds that a closed connection is not reset while the peer
// sends what nobody reads: a session would not be told why it ended.
func TestLastBytesReachAPeerThatSends(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 20 {
		peer, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		own, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		s := newSocket(own, time.Minute, 0)
		s.linger.Store(true)
		_, _ = io.WriteString(peer, "nobody reads this")
		_, _ = io.WriteString(s, "taken over")
		_ = s.Close()
		_, _ = io.WriteString(peer, "nor this")
		_ = peer.SetDeadline(time.Now().Add(10 * time.Second))
		if got, err := io.ReadAll(peer); err != nil || string(got) != "taken over" {
			t.Fatalf("the peer reads %q, %v", got, err)
		}
		if n, err := s.Read(make([]byte, 8)); n != 0 || err == nil {
			t.Fatalf("a closed socket read %d bytes, %v", n, err)
		}
	}
}
