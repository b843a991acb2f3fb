package sshgate

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// TestClosedBeforeTheFirstWrite: a client that confirms a channel and closes it at
// once, because its dial failed, has answered for its local server. It used to look
// like a tunnel that takes nothing, and the request was queued.
func TestClosedBeforeTheFirstWrite(t *testing.T) {
	t.Parallel()
	for name, lazy := range map[string]bool{"plain": false, "dials at the first byte": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			c := b.mustDial(b.alice)
			accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
				if ch, reqs, err := n.Accept(); err == nil {
					go ssh.DiscardRequests(reqs)
					_ = ch.Close()
				}
			})
			if lazy {
				_, _, _ = c.SendRequest(relay.HelloRequest, false, ssh.Marshal(relay.Hello{Protocol: 1, Flags: relay.HelloLazyDial}))
			}
			forwards(t, c, "a", 80)
			ch := open(t, b.online("a")).(*channel)
			defer ch.Close()
			select {
			case <-ch.peerClosed:
			case <-time.After(60 * time.Second):
				t.Fatal("the channel was not closed")
			}
			n, err := ch.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			if lazy {
				if n != 0 || err == nil {
					t.Errorf("%d, %v; want proof that nothing was sent", n, err)
				}
				return
			}
			if n != 0 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			if got, err := readAll(t, ch); len(got) > 0 || !errors.Is(err, io.EOF) {
				t.Errorf("read %q, %v", got, err)
			}
			if n, err := ch.Write([]byte("more")); n != 0 || err == nil {
				t.Errorf("second write: %d, %v", n, err)
			}
		})
	}
}

// TestLateEndOfConnection: x/crypto ends the channels of a connection before it closes
// it. On a busy machine the time between was enough to take the end of the tunnel for
// that of an answer.
func TestLateEndOfConnection(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		set  func(c *conn)
		ends bool
	}{
		"goodbye":         {func(c *conn) { time.AfterFunc(100*settleTime, c.cancel) }, true},
		"broken":          {func(c *conn) { c.sock.state.Store(socketLost) }, true},
		"goes on":         {func(c *conn) { c.sock.reading.Store(true) }, false},
		"goes on, slowly": {func(c *conn) { time.AfterFunc(100*settleTime, func() { c.sock.reading.Store(true) }) }, false},
		"not to be known": {func(*conn) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &conn{sock: &socket{}}
				c.ctx, c.cancel = context.WithCancel(t.Context())
				defer c.cancel()
				x.set(c)
				if c.connectionEnding() != x.ends {
					t.Errorf("want %v", x.ends)
				}
			})
		})
	}
}

// TestEndOfAnAnswerOnABusyConnection: where bytes come without a pause nobody is ever seen
// to wait for them, and each end of an answer took up to a second.
func TestEndOfAnAnswerOnABusyConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &conn{sock: &socket{}}
		c.ctx, c.cancel = context.WithCancel(t.Context())
		defer c.cancel()
		time.AfterFunc(3*settleTime/2, func() { c.sock.reads.Add(1) })
		began := time.Now()
		if c.connectionEnding() {
			t.Error("taken for the end of the connection")
		}
		if took := time.Since(began); took > 2*settleTime {
			t.Errorf("took %v", took)
		}
	})
}
