package sshgate

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

func TestChannelEchoesBindAndOrigin(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	got := make(chan forwardedOpen, 1)
	accept(t, c, func(o forwardedOpen, n ssh.NewChannel) {
		got <- o
		_ = n.Reject(ssh.ConnectionFailed, "dial tcp: \x1b[31mrefused")
	})
	forwards(t, c, "Stripe-Dev.", 0)
	_, err := b.online("stripe-dev").Open(t.Context(), origin)
	if e := relay.AsError(err); e.Code != relay.CodeLocalRefused || strings.ContainsRune(e.Detail, 0x1b) {
		t.Errorf("open: %v", err)
	}
	if o := <-got; o != (forwardedOpen{"Stripe-Dev.", 80, "203.0.113.9", 52011}) {
		t.Errorf("open payload %+v", o)
	}
}

func TestOpenFailureReasons(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	reason := make(chan ssh.RejectionReason, 1)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) { _ = n.Reject(<-reason, "why") })
	forwards(t, c, "a", 80)
	tun := b.online("a")
	for r, want := range map[ssh.RejectionReason]string{
		ssh.Prohibited: relay.CodeLocalUnresolvable, ssh.ConnectionFailed: relay.CodeLocalRefused,
		ssh.UnknownChannelType: relay.CodeLocalUnresolvable, ssh.ResourceShortage: relay.CodeOverloaded, 99: relay.CodeLocalUnresolvable,
	} {
		reason <- r
		if _, err := tun.Open(t.Context(), origin); relay.AsError(err) == nil || relay.AsError(err).Code != want {
			t.Errorf("reason %d: %v, want %s", r, err, want)
		}
	}
}

// TestUnansweredOpen: an unanswered channel open times out, the silent tunnel becomes stale, and a
// channel that is confirmed late is closed.
func TestUnansweredOpen(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	var busy sync.Mutex
	c := b.mustDialBusy(b.alice, "relay", &busy)
	held := make(chan ssh.NewChannel, 1)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) { held <- n })
	forwards(t, c, "a", 80)
	tun := b.online("a")
	busy.Lock() // an answer to a ping would keep the tunnel online
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := tun.Open(ctx, origin); err != relay.ErrNotSent {
		t.Fatalf("open: %v, want %v", err, relay.ErrNotSent)
	}
	hold := b.store.hold("a")
	// The tunnel becomes online again as soon as the client answers a ping, so the test counts the calls of Stale.
	eventually(t, 30*time.Second, "stale", func() bool {
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		return hold.stales == 1
	})
	busy.Unlock()
	ch, reqs, err := (<-held).Accept()
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(reqs)
	if _, err := ch.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("late channel: %v, want EOF", err)
	}
	b.online("a") // the late messages of the client show that it is alive
}

func TestOpenOnDeadConnection(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) { c.Close() })
	forwards(t, c, "a", 80)
	tun := b.online("a")
	if _, err := tun.Open(t.Context(), origin); err != relay.ErrNotSent {
		t.Errorf("open while the connection dies: %v", err)
	}
	eventually(t, 30*time.Second, "offline", func() bool { return b.store.state("a") == relay.TunnelOffline })
	if _, err := tun.Open(t.Context(), origin); err != relay.ErrNotSent {
		t.Errorf("open after that: %v", err)
	}
}

// TestLazyDialer: a client that behaves like relay up confirms channels at once, dials at the first byte, and
// reports a failed dial.
func TestLazyDialer(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	failure := make(chan relay.DialFailed, 1)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
		ch, reqs, err := n.Accept()
		if err != nil {
			return
		}
		go ssh.DiscardRequests(reqs)
		if _, err := ch.Read(make([]byte, 1)); err == nil {
			_, _ = ch.SendRequest(relay.DialFailedRequest, false, ssh.Marshal(<-failure))
			ch.Close()
		}
	})
	_, _, _ = c.SendRequest(relay.HelloRequest, false, ssh.Marshal(relay.Hello{Protocol: 1, Flags: relay.HelloLazyDial, Version: "1.2"}))
	_, _, _ = c.SendRequest(relay.TargetRequest, false, ssh.Marshal(relay.Target{Bind: "a", URL: "http://127.0.0.1:3000", HostHeader: "rewrite"}))
	forwards(t, c, "a", 80)
	tun := b.online("a")
	if info := tun.Info(); !tun.LazyDial() || info.Client != "relay 1.2" || info.Target != "http://127.0.0.1:3000" || info.HostHeader != "rewrite" || info.User != "alice" {
		t.Errorf("lazy %v, info %+v", tun.LazyDial(), info)
	}
	for f, want := range map[relay.DialFailed]string{
		{Reason: 2, Class: "refused", Text: "no"}:      relay.CodeLocalRefused,
		{Reason: 1, Class: "unresolvable", Text: "no"}: relay.CodeLocalUnresolvable,
		{Reason: 2, Class: "timeout"}:                  relay.CodeLocalRefused,
		{Reason: 4, Class: "other"}:                    relay.CodeOverloaded,
	} {
		failure <- f
		ch := open(t, tun)
		if _, err := ch.Write([]byte("GET")); err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(t, ch); len(got) != 0 || err != io.EOF {
			t.Errorf("read %q, %v", got, err)
		}
		if e := ch.End(30 * time.Second).Refusal; e == nil || e.Code != want {
			t.Errorf("%+v: refusal %v, want %s", f, e, want)
		}
		ch.Close()
	}
}

// TestLostConnectionIsNoCleanEnd: if the tunnel is lost in the middle of a response, the reader gets an
// error, not EOF.
func TestLostConnectionIsNoCleanEnd(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	for range 20 {
		c := b.mustDial(b.alice)
		ready := make(chan struct{})
		accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) {
			ch, reqs, err := n.Accept()
			if err != nil {
				return
			}
			go ssh.DiscardRequests(reqs)
			_, _ = ch.Write([]byte("part"))
			<-ready
			c.Close()
		})
		forwards(t, c, "a", 80)
		ch := open(t, b.online("a"))
		close(ready)
		if got, err := readAll(t, ch); string(got) != "part" || err == io.EOF {
			t.Errorf("got %q, %v, want part and no EOF", got, err)
		}
		ch.Close()
		eventually(t, 30*time.Second, "offline", func() bool { return b.store.state("a") == relay.TunnelOffline })
	}
}

// TestDisconnectIsNoCleanEnd: an SSH_MSG_DISCONNECT of OpenSSH in the middle of a response is an
// error, not EOF.
func TestDisconnectIsNoCleanEnd(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	began := make(chan struct{}, 1)
	port := b.local(func(c net.Conn) {
		_, _ = io.WriteString(c, "part")
		began <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	p := b.openssh(b.alice, "-N", "-R", "a:80:127.0.0.1:"+port, "127.0.0.1")
	ch := open(t, b.online("a"))
	defer ch.Close()
	<-began
	buf := make([]byte, 4)
	if f := <-filled(ch, buf); string(buf[:f.N]) != "part" {
		t.Fatalf("got %q, %v", buf[:f.N], f.Err)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // not SIGINT, which OpenSSH ignores if the parent of this test did, as a shell does for what runs in its background
	if f := <-filled(ch, buf); f.Err == nil || f.Err == io.EOF {
		t.Errorf("end %v, want a broken one", f.Err)
	}
}

func TestCloseReleasesBlockedWrite(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	c := b.mustDial(b.alice)
	accept(t, c, func(_ forwardedOpen, n ssh.NewChannel) { // the client does not read
		if _, reqs, err := n.Accept(); err == nil {
			go ssh.DiscardRequests(reqs)
		}
	})
	forwards(t, c, "a", 80)
	ch := open(t, b.online("a"))
	result := make(chan error, 1)
	go func() {
		_, err := ch.Write(make([]byte, 8<<20))
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("wrote more than the window: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	ch.Close()
	ch.Close()
	select {
	case err := <-result:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(30 * time.Second):
		t.Error("write is still blocked")
	}
	if n, err := ch.Write([]byte("x")); n != 0 || err == nil {
		t.Errorf("write after close: %d, %v", n, err)
	}
}
