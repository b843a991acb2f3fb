package sshgate

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"relay"
)

func TestFrozenClient(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) {
		o.PingInterval, o.PingTimeout, o.StaleClose = 200*time.Millisecond, 200*time.Millisecond, 30*time.Second
	})
	p := b.openssh(b.alice, "-N", "-R", "a:80:127.0.0.1:"+b.local(greetingServer), "127.0.0.1")
	tun := b.online("a")
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	began := time.Now()
	eventually(t, 30*time.Second, "stale", func() bool { return b.store.state("a") == relay.TunnelStale })
	t.Logf("stale after %v, heard %v ago", time.Since(began), tun.Heard())
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	began = time.Now()
	eventually(t, 30*time.Second, "online", func() bool { return b.store.state("a") == relay.TunnelOnline })
	t.Logf("online after %v", time.Since(began))
	ask(t, tun)
}

func TestStaleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) {
		// The ping timeout is longer than a pause of the process, so that the connection lives until the client stops.
		o.PingInterval, o.PingTimeout, o.StaleClose = 100*time.Millisecond, 4*time.Second, 100*time.Millisecond
	})
	p := b.openssh(b.alice, "-N", "-R", "a:80:127.0.0.1:1", "127.0.0.1")
	eventually(t, 30*time.Second, "attached", func() bool { return b.store.hold("a") != nil }) // the state online may have passed already
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	eventually(t, 30*time.Second, "offline", func() bool { return b.store.state("a") == relay.TunnelOffline })
}

func TestIdleTunnelStaysOnline(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) {
		o.PingInterval, o.PingTimeout, o.StaleClose = 20*time.Millisecond, time.Minute, time.Minute
	})
	b.openssh(b.alice, "-N", "-R", "a:80:127.0.0.1:1", "127.0.0.1")
	tun := b.online("a")
	// Heard returns the time since the last byte of the client, so it falls only when an answer to a ping arrives.
	answers, last := 0, tun.Heard()
	eventually(t, 30*time.Second, "ten answers to pings", func() bool {
		now := tun.Heard()
		if now < last {
			answers++
		}
		last = now
		return answers >= 10
	})
	if got := b.store.state("a"); got != relay.TunnelOnline {
		t.Errorf("state %s", got)
	}
}

func TestFrozenWriterIsClosed(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) {
		o.PingInterval, o.PingTimeout = 100*time.Millisecond, 200*time.Millisecond
	})
	p := b.openssh(b.alice, "-N", "-R", "a:80:127.0.0.1:"+b.local(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), "127.0.0.1")
	tun := b.online("a")
	channels := make([]relay.Conn, 8)
	for i := range channels {
		channels[i] = open(t, tun)
	}
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	for _, ch := range channels {
		go func() { _, _ = ch.Write(make([]byte, 2<<20)) }()
	}
	eventually(t, 30*time.Second, "offline", func() bool { return b.store.state("a") == relay.TunnelOffline })
	for _, ch := range channels {
		ch.Close()
	}
}
