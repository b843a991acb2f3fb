package sshgate

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
)

// long is longer than each time limit of a connection: those of its login, of an unused or silent connection, and
// of a stop.
const long = 3 * time.Hour

// TestConnectionsOutliveEveryTimer: tunnels, requests and sessions still work after hours if the client keeps them
// open. A login deadline that was left on the socket, for example, would end them after some seconds.
func TestConnectionsOutliveEveryTimer(t *testing.T) {
	still := func(t *testing.T, b *timed) {
		t.Helper()
		time.Sleep(long)
		synctest.Wait()
		if n := b.connections(); n != 1 {
			t.Fatalf("%d connections after %v", n, long)
		}
	}
	echo := func(t *testing.T, client *ssh.Client) {
		accept(t, client, func(_ forwardedOpen, n ssh.NewChannel) {
			ch, reqs, err := n.Accept()
			if err != nil {
				return
			}
			go ssh.DiscardRequests(reqs)
			go func() { _, _ = io.Copy(ch, ch); _ = ch.Close() }()
		})
	}
	says := func(t *testing.T, ch io.ReadWriter, text string) {
		t.Helper()
		if _, err := io.WriteString(ch, text); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, len(text))
		if _, err := io.ReadFull(ch, p); err != nil || string(p) != text {
			t.Fatalf("%q came back, %v", p, err)
		}
	}
	inFakeTime(t, "a tunnel without requests", func(t *testing.T, b *timed) {
		client, _ := b.tunnel("a")
		echo(t, client)
		still(t, b)
		if n := b.store.hold("a").stales; n != 0 {
			t.Errorf("it was stale %d times", n)
		}
		ch := open(t, b.online("a"))
		defer ch.Close()
		says(t, ch, "late")
	})
	inFakeTime(t, "a request that lasts", func(t *testing.T, b *timed) {
		client, _ := b.tunnel("a")
		echo(t, client)
		ch := open(t, b.online("a"))
		defer ch.Close()
		says(t, ch, "early")
		still(t, b)
		says(t, ch, "late")
	})
	inFakeTime(t, "the live view beside a tunnel", func(t *testing.T, b *timed) {
		client, _ := b.tunnel("a")
		s, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		if err := s.Shell(); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- s.Wait() }()
		still(t, b)
		select {
		case err := <-ended:
			t.Errorf("the session ended: %v", err)
		default:
		}
		_ = client.Close()
		<-ended
	})
}
