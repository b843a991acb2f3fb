package sshgate

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// forwards requests a forward and returns the reply.
func forwards(t *testing.T, c *ssh.Client, bind string, port uint32) (bool, []byte) {
	t.Helper()
	ok, payload, err := c.SendRequest("tcpip-forward", true, ssh.Marshal(forwardRequest{bind, port}))
	if err != nil {
		t.Fatalf("tcpip-forward: %v", err)
	}
	return ok, payload
}

// accept passes every channel that relayd opens for a forward to the function handle.
func accept(t *testing.T, c *ssh.Client, handle func(open forwardedOpen, ch ssh.NewChannel)) {
	t.Helper()
	opens := c.HandleChannelOpen("forwarded-tcpip")
	go func() {
		for n := range opens {
			var o forwardedOpen
			if err := ssh.Unmarshal(n.ExtraData(), &o); err != nil {
				t.Errorf("open payload: %v", err)
			}
			handle(o, n)
		}
	}()
}

func TestForwardReplies(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.alias("foreign", 2)
	c := b.mustDial(b.alice)
	for _, x := range []struct {
		bind string
		port uint32
		ok   bool
		want []byte
	}{
		{"stripe-dev", 80, true, nil},
		{"Other-Dev.example.test.", 0, true, []byte{0, 0, 0, 80}},
		{"third-dev", 65535, true, nil},
		{"stripe-dev", 65536, false, nil},
		{"foreign", 80, false, nil},
		{"bad_alias$", 80, false, nil},
		{"admin", 80, false, nil},
		{"relay", 80, false, nil},
		{"xn--bcher-kva", 80, false, nil},
		{"-a", 80, false, nil},
		{"a.b", 80, false, nil},
		{strings.Repeat("a", 64), 80, false, nil},
		{strings.Repeat("a.", 5000), 80, false, nil},
		{"\u212Aelvin", 80, false, nil}, // the Kelvin sign becomes k in lower case
		{"\x00\x1b[2J", 80, false, nil},
	} {
		if ok, payload := forwards(t, c, x.bind, x.port); ok != x.ok || !bytes.Equal(payload, x.want) {
			t.Errorf("forward %.40q:%d: %v %v, want %v %v", x.bind, x.port, ok, payload, x.ok, x.want)
		}
	}
	for name, payload := range map[string][]byte{
		"empty": nil, "short": {0, 0, 0, 9, 'a'}, "trailing": append(ssh.Marshal(forwardRequest{"a", 80}), 1),
	} {
		if ok, text, err := c.SendRequest("tcpip-forward", true, payload); ok || len(text) > 0 || err != nil {
			t.Errorf("%s payload: %v %q %v", name, ok, text, err)
		}
	}
	if got := b.store.state("foreign"); got != relay.TunnelNever {
		t.Errorf("foreign alias is %s", got)
	}
}

func TestUnknownGlobalRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	for _, name := range []string{"keepalive@openssh.com", "streamlocal-forward@openssh.com", "no-more-sessions@openssh.com", "x"} {
		if ok, payload, err := c.SendRequest(name, true, []byte("payload")); ok || len(payload) > 0 || err != nil {
			t.Errorf("%s: %v %q %v", name, ok, payload, err)
		}
	}
}

func TestRefusedChannels(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	for name, want := range map[string]ssh.RejectionReason{
		"direct-tcpip": ssh.Prohibited, "tun@openssh.com": ssh.Prohibited,
		"direct-streamlocal@openssh.com": ssh.Prohibited, "x11": ssh.UnknownChannelType, "": ssh.UnknownChannelType,
	} {
		_, _, err := c.OpenChannel(name, nil)
		if e, ok := err.(*ssh.OpenChannelError); !ok || e.Reason != want || e.Message == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestForwardLimit(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	for i := range maxForwards {
		if ok, _ := forwards(t, c, fmt.Sprintf("a%d", i), 80); !ok {
			t.Fatalf("forward %d refused", i)
		}
	}
	if ok, _ := forwards(t, c, "one-more", 80); ok {
		t.Error("forward 17 accepted")
	}
	b.store.mu.Lock()
	if len(b.store.aliases) != maxForwards {
		t.Error("the name of a refused forward was claimed")
	}
	b.store.mu.Unlock()
	for range 2 * maxQueuedRequests { // each request waits for the reply to the previous one
		if ok, _ := forwards(t, c, "one-more", 80); ok {
			t.Fatal("accepted")
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	forwards(t, c, "a", 80)
	forwards(t, c, "B", 0)
	b.online("a")
	b.online("b")
	cancel := func(bind string, port uint32, reply bool) bool {
		ok, _, err := c.SendRequest("cancel-tcpip-forward", reply, ssh.Marshal(forwardRequest{bind, port}))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if cancel("a", 81, true) || cancel("never", 80, true) || cancel("b", 80, true) {
		t.Error("canceled what was not there")
	}
	cancel("a", 80, false)
	eventually(t, 30*time.Second, "a offline", func() bool { return b.store.state("a") == relay.TunnelOffline })
	if b.store.state("b") != relay.TunnelOnline {
		t.Error("the other forward went too")
	}
	if !cancel("B", 80, true) {
		t.Error("cancel by the given port was refused")
	}
	if b.store.state("b") != relay.TunnelOffline {
		t.Error("b is not offline after the reply")
	}
}

func TestExitOnForwardFailure(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.alias("foreign", 2)
	p := b.openssh(b.alice, "-N", "-o", "ExitOnForwardFailure=yes", "-R", "mine:80:127.0.0.1:1", "-R", "foreign:80:127.0.0.1:1", "127.0.0.1")
	if code := p.code(t); code != 255 || !contains(p.err, "remote port forwarding failed for listen port 80") {
		t.Errorf("exit %d: %s", code, p.err)
	}
}

func TestStreamlocalIsRefused(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	p := b.openssh(b.alice, "-N", "-o", "ExitOnForwardFailure=yes", "-R", "/stripe-dev:localhost:3000", "127.0.0.1")
	if code := p.code(t); code != 255 || !contains(p.err, "remote port forwarding failed for listen path /stripe-dev") {
		t.Errorf("exit %d: %s", code, p.err)
	}
}

// TestSlowStoreBlocksNothing: while a forward waits for the store to give it its alias, other channels of the
// connection continue.
func TestSlowStoreBlocksNothing(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) { _ = n.Reject(ssh.ConnectionFailed, "") })
	forwards(t, c, "a", 80)
	tun := b.online("a")
	b.store.slow = make(chan struct{})
	for i := range 40 { // more than x/crypto buffers: if the server stopped reading requests, the channels would stop too
		if _, _, err := c.SendRequest("tcpip-forward", false, ssh.Marshal(forwardRequest{fmt.Sprintf("b%d", i), 80})); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if _, err := tun.Open(ctx, origin); relay.AsError(err).Code != relay.CodeLocalRefused {
			t.Errorf("open: %v", err)
		}
		cancel()
	}
	close(b.store.slow)
	b.online("b14") // b14 is the last forward within the limit; the claim of b0 may have timed out
}

// TestForwardOfTheBaseHost: a forward does not claim the name whose host would be the base host, although the store has
// no objection.
func TestForwardOfTheBaseHost(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.Site.Base.Host = "team.example.test:8080" })
	if ok, _ := forwards(t, b.mustDial(b.alice), "team", 80); ok {
		t.Error("team.example.test, the base host, became an alias")
	}
}
