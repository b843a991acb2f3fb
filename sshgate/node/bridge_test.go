package node

import (
	"testing"
	"testing/synctest"

	"relay"
	"relay/link"
)

// slots is a fake tunnel that counts its used slots.
type slots struct {
	Tunnel
	used int
}

func (s *slots) Acquire(<-chan struct{}) (release func(), err *relay.Error) {
	s.used++
	return func() { s.used-- }, nil
}

// TestParkedOutOfOrder: the other node sends each parked@relay from its own goroutine, so these messages may
// arrive out of order. Even then, an ended request holds no slot, and the next request gets one.
func TestParkedOutOfOrder(t *testing.T) {
	t.Parallel()
	tunnel := &slots{}
	b := &bridge{tunnel: tunnel, remote: &link.Channel{}}
	parkedAt := func(sent uint64) {
		b.request(nil, &link.Request{Type: parkedRequest, Payload: link.Marshal(parked{sent})})
	}
	if !b.use(100) || tunnel.used != 1 {
		t.Fatalf("a request uses %d slots", tunnel.used)
	}
	parkedAt(150)
	parkedAt(100)
	if !b.use(50) || tunnel.used != 0 {
		t.Errorf("a request that has ended uses %d slots", tunnel.used)
	}
	if !b.use(1) || tunnel.used != 1 {
		t.Errorf("the next request uses %d slots", tunnel.used)
	}
}

// halves is a fake channel to a client that counts the half-closes.
type halves struct {
	relay.Conn
	closed int
}

func (h *halves) CloseWrite() error { h.closed++; return nil }

// TestHalfCloseAfterItsEOF: the announcement of a half-close may be handled after the EOF that it announces.
// Even then, the EOF is passed to the client.
func TestHalfCloseAfterItsEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &halves{}
		b := &bridge{remote: &link.Channel{}, local: client, halfClosed: make(chan struct{})}
		go b.passEOF()
		synctest.Wait()
		if client.closed != 0 {
			t.Error("an EOF without an announcement was passed as a half-close")
		}
		b.request(nil, &link.Request{Type: halfCloseRequest})
		synctest.Wait()
		if client.closed != 1 {
			t.Errorf("%d half-closes were passed", client.closed)
		}
	})
}
