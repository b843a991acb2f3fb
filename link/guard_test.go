package link

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestLateEndOfConnection: ending returns true if the connection ends soon after the channel, or its socket is
// lost. It returns false if the reader waits for bytes again, or if nothing happens.
func TestLateEndOfConnection(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		set  func(c *Conn)
		ends bool
	}{
		"goodbye":         {func(c *Conn) { time.AfterFunc(100*settleTime, c.cancel) }, true},
		"broken":          {func(c *Conn) { c.Sock.state.Store(socketLost) }, true},
		"goes on":         {func(c *Conn) { c.Sock.reading.Store(true) }, false},
		"goes on, slowly": {func(c *Conn) { time.AfterFunc(100*settleTime, func() { c.Sock.reading.Store(true) }) }, false},
		"not to be known": {func(*Conn) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &Conn{Sock: &Socket{}}
				c.ctx, c.cancel = context.WithCancel(t.Context())
				defer c.cancel()
				x.set(c)
				if c.ending() != x.ends {
					t.Errorf("want %v", x.ends)
				}
			})
		})
	}
}

// TestEndOfAnAnswerOnABusyConnection: a read of the socket after the end of a channel makes ending return false within
// twice settleTime.
func TestEndOfAnAnswerOnABusyConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Conn{Sock: &Socket{}}
		c.ctx, c.cancel = context.WithCancel(t.Context())
		defer c.cancel()
		time.AfterFunc(3*settleTime/2, func() { c.Sock.reads.Add(1) })
		began := time.Now()
		if c.ending() {
			t.Error("taken for the end of the connection")
		}
		if took := time.Since(began); took > 2*settleTime {
			t.Errorf("took %v", took)
		}
	})
}
