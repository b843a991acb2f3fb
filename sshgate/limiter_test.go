package sshgate

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// silentSlots acquires slots for n connections whose peers have been silent, the first
// one for the longest time.
func silentSlots(l *connLimiter, addr string, n int) (list []*slot) {
	a := netip.MustParseAddr(addr)
	for i := range n {
		began := time.Now().Add(-time.Hour + time.Duration(i)*time.Minute)
		s := &slot{c: &conn{sock: &socket{start: began}}, source: relay.SourceOf(a), shared: a.IsLoopback()}
		l.acquire(s)
		list = append(list, s)
	}
	return list
}

// TestBusiestSourceIsEvicted: a source with many silent sockets loses the oldest of
// them to new connections, not the source that came first.
func TestBusiestSourceIsEvicted(t *testing.T) {
	t.Parallel()
	l := newConnLimiter(0, 0, 0)
	l.maxUnauthenticated = 10
	few := silentSlots(l, "203.0.113.1", 2)
	many := silentSlots(l, "203.0.113.2", 8)
	for n := range 6 {
		s := &slot{source: relay.SourceOf(netip.AddrFrom4([4]byte{203, 0, 113, byte(100 + n)}))}
		evicted, reason := l.acquire(s)
		if reason != dropUnauthenticated || evicted == nil || evicted == few[0] || evicted == few[1] {
			t.Fatalf("%d: evicted %v for %q", n, evicted, reason)
		}
		if evicted != many[n] {
			t.Errorf("%d: the evicted connection was not the most silent one", n)
		}
	}
	if got := l.counts()[stateUnauthenticated]; got != 10 {
		t.Errorf("%d unauthenticated", got)
	}
}

// TestWorkingLoginsAreNotEvicted: when all logins wait for an answer of ours, the new
// connection is rejected.
func TestWorkingLoginsAreNotEvicted(t *testing.T) {
	t.Parallel()
	l := newConnLimiter(0, 0, 0)
	l.maxUnauthenticated = 5
	list := silentSlots(l, "203.0.113.1", 5)
	for _, s := range list {
		s.c.lookups.Add(1)
	}
	late := &slot{source: list[0].source}
	if evicted, reason := l.acquire(late); evicted != nil || reason != dropUnauthenticated {
		t.Errorf("evicted %v for %q", evicted, reason)
	}
	list[3].c.lookups.Add(-1)
	if evicted, _ := l.acquire(late); evicted != list[3] {
		t.Errorf("evicted %v, not the only one that waits for its peer", evicted)
	}
}

func TestTotalLimit(t *testing.T) {
	t.Parallel()
	l := newConnLimiter(3, 0, 0)
	list := silentSlots(l, "127.0.0.1", 3)
	l.to(list[0], stateLoggedIn)
	l.to(list[1], stateLoggedIn)
	s := &slot{source: list[0].source, shared: true}
	if evicted, reason := l.acquire(s); reason != dropTotal || evicted != list[2] {
		t.Error("the silent connection did not lose its slot")
	}
	l.to(s, stateLoggedIn)
	if evicted, reason := l.acquire(&slot{shared: true}); reason != dropTotal || evicted != nil {
		t.Error("a logged-in connection was evicted, or there were too many")
	}
	if got := l.counts(); got.all() != 3 {
		t.Errorf("%v", got)
	}
}

// TestPromptsOfOneSource: eight logins of one source may wait for a person, and as many as
// there are of a source that stands for many people, up to the limit of all.
func TestPromptsOfOneSource(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]int{"203.0.113.1": maxPromptsPerSource, "127.0.0.1": 20} {
		l := newConnLimiter(0, 0, 0)
		l.maxPrompts = 20
		got := 0
		for _, s := range silentSlots(l, addr, 30) {
			if l.beginPrompt(s) {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: %d logins wait for a person, want %d", addr, got, want)
		}
	}
}

// TestLimiterForgets: nothing is left of connections that have ended, however they did.
func TestLimiterForgets(t *testing.T) {
	t.Parallel()
	l := newConnLimiter(40, 4, 0)
	l.maxUnauthenticated = 6
	var all []*slot
	for i := range 50 {
		s := &slot{
			c:      &conn{sock: &socket{start: time.Now().Add(-time.Minute)}},
			source: relay.SourceOf(netip.AddrFrom4([4]byte{203, 0, 113, byte(i % 7)})),
		}
		all = append(all, s)
		if evicted, reason := l.acquire(s); reason != "" && evicted == nil {
			s.released = true
		}
		if i%3 == 0 && l.beginPrompt(s) && i%6 == 0 {
			l.to(s, stateUnauthenticated)
		}
		if i%5 == 0 {
			l.reserveAccount(s, int64(i%3+1))
			l.to(s, stateLoggedIn)
		}
	}
	for _, s := range all {
		l.release(s)
		l.release(s)
	}
	if l.counts() != (slotCounts{}) || len(l.sources) != 0 || len(l.accounts) != 0 || len(l.unauthenticated) != 0 {
		t.Errorf("left: %v, %d sources, %d accounts, %d unauthenticated", l.counts(), len(l.sources), len(l.accounts), len(l.unauthenticated))
	}
}

// TestSilentSocketsKeepNobodyOut: a thousand silent sockets, from the same address
// and before and after them a login.
func TestSilentSocketsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.srv.limiter.mu.Lock()
	b.srv.limiter.maxUnauthenticated = 200
	b.srv.limiter.mu.Unlock()
	for n := range 1000 {
		c, err := net.Dial("tcp", "127.0.0.1:"+b.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if n%3 == 0 {
			_, _ = c.Write([]byte("SSH-2.0-x\r\n"))
		}
	}
	eventually(t, 30*time.Second, "all accepted", func() bool { return b.srv.Stats().Accepted == 1000 })
	began := time.Now()
	client, _, err := b.dial("x", ssh.PublicKeys(b.alice.signer))
	if err != nil {
		t.Fatal(err)
	}
	// The login alone is not enough: a silent peer once held a lock that each
	// connection needed after it.
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := session.Output("whoami"); err != nil || string(out) != "alice\n" {
		t.Errorf("whoami: %q, %v", out, err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the login took %v", took)
	}
	eventually(t, 30*time.Second, "bounded", func() bool { s := b.srv.Stats(); return s.Handshaking <= 200 && s.Dropped > 0 })
}

// TestAccountLimit: one account cannot take the slots of all others, and gets its own
// back when it leaves.
func TestAccountLimit(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.MaxPerAccount = 2 })
	first := b.mustDial(b.alice)
	b.mustDial(b.newKey("alice", 1))
	_, banner, err := b.dial("x", ssh.PublicKeys(b.alice.signer))
	if err == nil || !strings.Contains(banner, "this account has too many connections open") {
		t.Errorf("a third one: %v, %q", err, banner)
	}
	b.mustDial(b.newKey("bob", 2))
	first.Close()
	eventually(t, 30*time.Second, "a free slot", func() bool {
		client, _, err := b.dial("x", ssh.PublicKeys(b.alice.signer))
		if err == nil {
			client.Close()
		}
		return err == nil
	})
}

// TestAccountLimitOfAllNodes: connections at other nodes count too, and the other nodes are
// told of the accounts that come near the limit.
func TestAccountLimitOfAllNodes(t *testing.T) {
	t.Parallel()
	l := newConnLimiter(0, 0, 128)
	elsewhere := 126
	l.elsewhere = func(account int64) int { return map[int64]int{1: elsewhere}[account] }
	reserve := func(account int64) bool { return l.reserveAccount(&slot{}, account) }
	if !reserve(1) || len(l.accountsToTell()) != 0 {
		t.Errorf("the first one of 127: refused, or told: %v", l.accountsToTell())
	}
	if !reserve(1) || reserve(1) {
		t.Error("the limit of 128 connections at all nodes does not hold")
	}
	if told := l.accountsToTell(); len(told) != 1 || told[1] != 2 {
		t.Errorf("told: %v", told)
	}
	if elsewhere--; !reserve(1) || !reserve(2) {
		t.Error("refused with a connection less elsewhere, or for another account")
	}
	l = newConnLimiter(0, 0, 2)
	if l.reserveAccount(&slot{}, 1); l.accountsToTell()[1] != 1 {
		t.Errorf("of a low limit is told: %v", l.accountsToTell())
	}
}
