package sshgate

import (
	"net"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// scripted is a client whose version line the test chooses. Requests of relayd that want a reply, such as pings, go
// to the channel pings, and the test replies to them.
type scripted struct {
	ssh.Conn
	pings chan *ssh.Request
}

func (b *fixture) dialAs(version string) scripted {
	b.t.Helper()
	tcp, err := net.Dial("tcp", "127.0.0.1:"+b.port)
	if err != nil {
		b.t.Fatal(err)
	}
	c, channels, requests, err := ssh.NewClientConn(tcp, "relay", &ssh.ClientConfig{
		User: "relay", ClientVersion: "SSH-2.0-" + version,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(b.alice.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		b.t.Fatalf("login: %v", err)
	}
	pings := make(chan *ssh.Request, 10)
	go func() {
		for r := range requests {
			if r.WantReply {
				pings <- r
			}
		}
	}()
	go func() {
		for open := range channels {
			_ = open.Reject(ssh.ConnectionFailed, "")
		}
	}()
	b.t.Cleanup(func() { c.Close() })
	return scripted{c, pings}
}

func (c scripted) ping(t *testing.T) *ssh.Request {
	t.Helper()
	select {
	case r := <-c.pings:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("relayd has asked nothing")
		return nil
	}
}

// forward requests the alias shop without a reply, because the library would wait for a reply.
func (c scripted) forward(t *testing.T) {
	t.Helper()
	if _, _, err := c.SendRequest("tcpip-forward", false, ssh.Marshal(forwardRequest{"shop", 80})); err != nil {
		t.Fatal(err)
	}
}

// TestForwardsOfKnownClients: clients of known versions request forwards and a session before they answer a ping,
// so after one answer relayd knows what the connection is for. OpenSSH and Dropbear are pinged before their first
// request, so relayd does not wait for an extra round trip.
func TestForwardsOfKnownClients(t *testing.T) {
	t.Parallel()
	for version, early := range map[string]bool{"OpenSSH_9.9 Debian-1": true, "dropbear_2022.83": true, "PuTTY_Release_0.78": false} {
		begin := func(t *testing.T, session bool) (b *fixture, c scripted, ch ssh.Channel) {
			b = newFixture(t)
			c = b.dialAs(version)
			var ping *ssh.Request
			if early {
				ping = c.ping(t) // if early is set, relayd pings the client before its first request
			}
			c.forward(t)
			if session {
				var reqs <-chan *ssh.Request
				var err error
				if ch, reqs, err = c.OpenChannel("session", nil); err != nil {
					t.Fatal(err)
				}
				go ssh.DiscardRequests(reqs)
			}
			if !early {
				ping = c.ping(t)
			}
			_ = ping.Reply(false, nil)
			return b, c, ch
		}
		t.Run(version+" tunnel", func(t *testing.T) {
			t.Parallel()
			b, c, _ := begin(t, false)
			b.online("shop")
			if len(c.pings) > 0 {
				t.Error("a second round trip")
			}
		})
		t.Run(version+" session that begins nothing", func(t *testing.T) {
			t.Parallel()
			b, _, ch := begin(t, true)
			_ = ch.Close()
			b.online("shop")
		})
		t.Run(version+" command that comes late", func(t *testing.T) {
			t.Parallel()
			b, _, ch := begin(t, true)
			time.Sleep(200 * time.Millisecond) // within this time, relayd would claim the alias if it did not wait for the command
			if b.store.has("shop") {
				t.Error("the alias was claimed before it was known what the session runs")
			}
			if ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Line string }{"whoami"})); !ok || err != nil {
				t.Fatal(ok, err)
			}
			eventually(t, 30*time.Second, "the refusal", func() bool { return b.refusals(1) != "" })
			if b.store.has("shop") {
				t.Error("a command has claimed the alias")
			}
		})
	}
}
