package sshgate

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// TestClientsMoveToAnotherNode: a client that can move keeps its tunnel until its alias is online at the
// other node, and its running requests end normally. A plain ssh client gets a message and is disconnected.
// New clients are refused until Stay.
func TestClientsMoveToAnotherNode(t *testing.T) {
	t.Parallel()
	all := &cluster{nodes: map[string]relay.Node{}}
	b, _ := all.newMember(t, "leaving", func(o *Options) { o.DrainTime = time.Minute })
	_, _ = all.newMember(t, "other")
	all.mu.Lock()
	other := all.nodes["other"]
	other.State = relay.NodeServing
	all.nodes["other"] = other
	all.mu.Unlock()

	b.srv.moveWait = time.Minute

	client, notices := b.dialHearing(b.alice)
	_, _, _ = client.SendRequest(relay.HelloRequest, false, ssh.Marshal(relay.Hello{Protocol: 1, Flags: relay.HelloMoves}))
	accept(t, client, func(o forwardedOpen, n ssh.NewChannel) { go echo(o, n) })
	for _, alias := range []string{"a", "b"} {
		forwards(t, client, alias, 80)
		b.online(alias)
		if n := wantNotice(t, notices, relay.NoticeOnline, alias); n.RetryAfterMs != lossSpreadMs {
			t.Errorf("after a loss the client waits %d ms", n.RetryAfterMs)
		}
	}
	plain := b.openssh(b.newKey("bob", 2), "-tt", "-R", "c:80:127.0.0.1:"+b.local(greetingServer), "127.0.0.1")
	b.online("c")
	eventually(t, 30*time.Second, "header", func() bool { return contains(plain.out, "Press Ctrl+C") })

	moved := make(chan struct{})
	go func() {
		defer close(moved)
		b.srv.Move(t.Context())
	}()
	wantNotice(t, notices, relay.NoticeMoving, "")
	if plain.code(t); !contains(plain.out, b.srv.o.Site.SSHAddr+" leads to another one") {
		t.Errorf("plain ssh was told %q", plain.out.String())
	}
	if state := b.store.state("c"); state != relay.TunnelOffline {
		t.Errorf("the alias of plain ssh is %s", state)
	}
	if _, _, err := b.dial("relay", ssh.PublicKeys(b.alice.signer)); err == nil || !strings.Contains(err.Error(), "takes no clients") {
		t.Errorf("a new client: %v", err)
	}
	under := open(t, b.online("a"))
	b.online("a").Close("taken over by a newer connection")
	eventually(t, 30*time.Second, "a has moved", func() bool { return b.store.state("a") == relay.TunnelOffline })
	_ = open(t, b.online("b")).Close()
	b.online("b").Close("taken over by a newer connection")
	<-moved
	if _, err := under.Write([]byte("last words")); err != nil {
		t.Error(err)
	}
	_ = under.CloseWrite()
	if got, err := readAll(t, under); string(got) != "last words" || err != io.EOF {
		t.Errorf("under way: %q, %v", got, err)
	}
	_ = under.Close()
	if err := client.Wait(); err == nil || err == net.ErrClosed {
		t.Errorf("the old connection ended with %v", err)
	}
	b.srv.Stay()
	b.mustDial(b.alice)
}
