package server

import (
	"net"
	"runtime"
	"testing"

	"relay"
)

// TestPresenceOfAPeer: presence tells whether the peer is connected, has sent FIN, or has reset the
// connection, also while bytes of the peer are unread.
func TestPresenceOfAPeer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("asks TCP_INFO")
	}
	ways := map[string]struct {
		leave func(*net.TCPConn) error
		want  relay.Presence
	}{
		"stays": {func(*net.TCPConn) error { return nil }, relay.CallerPresent},
		"ends":  {(*net.TCPConn).CloseWrite, relay.CallerHalfClosed},
		"reset": {func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() }, relay.CallerReset},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			peer, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = peer.Close() }()
			c, err := l.AcceptTCP()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := peer.Write([]byte("unread")); err != nil {
				t.Fatal(err)
			}
			if err := way.leave(peer); err != nil {
				t.Fatal(err)
			}
			known := newPeer(c)
			until(t, func() bool { return known.presence() == way.want })
		})
	}
}
