package link

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestLastBytesReachAPeerThatSends: after Linger, a peer that still sends gets the last bytes and an orderly
// end.
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
		s.Linger()
		_, _ = io.WriteString(peer, "nobody reads this")
		_, _ = io.WriteString(s, "taken over")
		closed := time.Now()
		s.Close(Unneeded)
		_, _ = io.WriteString(peer, "nor this")
		_ = peer.SetDeadline(time.Now().Add(30 * time.Second))
		got, err := io.ReadAll(peer)
		if err != nil && time.Since(closed) >= lingerTime {
			continue // this goroutine came to read too late: a peer that does not close its side is reset after lingerTime
		}
		if err != nil || string(got) != "taken over" {
			t.Fatalf("the peer reads %q, %v", got, err)
		}
		if n, err := s.Read(make([]byte, 8)); n != 0 || err == nil {
			t.Fatalf("a closed socket read %d bytes, %v", n, err)
		}
	}
}

// TestUnreadBytesAreNoSilence: SilentFor returns a short time if bytes of the peer are unread, and a long one
// only after unreadTrustedFor.
func TestUnreadBytesAreNoSilence(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	tcp, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	s := newSocket(tcp, time.Minute, 0)
	if s.unread == nil {
		t.Skip("this system does not tell")
	}
	s.onHeard = func() {}
	s.start = time.Now().Add(-5 * time.Second)
	if q := s.SilentFor(); q < 5*time.Second {
		t.Errorf("quiet for %v where nothing came", q)
	}
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the byte to come", s.unread)
	if q := s.SilentFor(); q >= 5*time.Second {
		t.Errorf("quiet for %v with a byte to read", q)
	}
	s.start = time.Now().Add(-2 * unreadTrustedFor)
	if q := s.SilentFor(); q < unreadTrustedFor {
		t.Errorf("quiet for %v with a byte that nobody reads", q)
	}
	if _, err := s.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if q := s.SilentFor(); q > unreadTrustedFor {
		t.Errorf("quiet for %v after it was read", q)
	}
}
