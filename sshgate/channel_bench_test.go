package sshgate

import (
	"testing"

	"golang.org/x/crypto/ssh"

	"relay"
)

// BenchmarkChannel measures one request of 2 KiB and its answer through a TCP connection on loopback, on a
// new and on a reused channel.
func BenchmarkChannel(b *testing.B) {
	for _, reuse := range []bool{false, true} {
		name := "new"
		if reuse {
			name = "reused"
		}
		b.Run(name, func(b *testing.B) {
			tun := benchTunnel(b)
			request, answer := make([]byte, 2048), make([]byte, 16<<10)
			var ch relay.Conn
			b.ReportAllocs()
			for b.Loop() {
				if ch == nil {
					var err error
					if ch, err = tun.Open(b.Context(), origin); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := ch.Write(request); err != nil {
					b.Fatal(err)
				}
				if _, err := ch.Read(answer); err != nil {
					b.Fatal(err)
				}
				if !reuse {
					ch.Close()
					ch = nil
				}
			}
			if ch != nil {
				ch.Close()
			}
		})
	}
}

func benchTunnel(b *testing.B) relay.Tunnel {
	b.Helper()
	t := newFixture(b)
	c := t.mustDial(t.alice)
	opens := c.HandleChannelOpen("forwarded-tcpip")
	go func() {
		for n := range opens {
			ch, reqs, err := n.Accept()
			if err != nil {
				return
			}
			go ssh.DiscardRequests(reqs)
			go func() {
				defer ch.Close()
				buf, got := make([]byte, 4096), 0
				for {
					n, err := ch.Read(buf)
					if err != nil {
						return
					}
					if got += n; got >= 2048 {
						got -= 2048
						_, _ = ch.Write(buf[:200])
					}
				}
			}()
		}
	}()
	if ok, _, err := c.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{"a", 80})); !ok || err != nil {
		b.Fatal(ok, err)
	}
	return t.online("a")
}
