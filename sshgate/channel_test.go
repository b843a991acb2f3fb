package sshgate

import (
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/link"
)

// TestClosedBeforeTheFirstWrite: a client confirms a channel and closes it at once. If the client dials at
// the first byte, the first write fails without a sent byte. Otherwise, the first write succeeds, and the
// read ends with EOF.
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
			ch := open(t, b.online("a"))
			defer ch.Close()
			select {
			case <-ch.(*link.Channel).Ended():
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
			if err != nil {
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
