package sshgate

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

func places(w *crowd, addr string, n int) (list []*place) {
	a := netip.MustParseAddr(addr)
	for range n {
		p := &place{from: sourceOf(a), local: a.IsLoopback()}
		w.arrive(p)
		list = append(list, p)
	}
	return list
}

// TestBusiestGoesFirst: a source with many silent sockets pays for them, not the
// one that came first.
func TestBusiestGoesFirst(t *testing.T) {
	t.Parallel()
	w := newCrowd(Bounds{Silent: 10})
	quiet := places(w, "203.0.113.1", 2)
	many := places(w, "203.0.113.2", 8)
	for n := range 100 {
		p := &place{from: sourceOf(netip.MustParseAddr("203.0.113.3"))}
		reason, victim := w.arrive(p)
		if victim == nil || reason != dropSilent {
			t.Fatalf("%d: nobody had to go", n)
		}
		if victim == quiet[0] || victim == quiet[1] {
			t.Fatalf("%d: a source with two had to go", n)
		}
		if n == 0 && victim != many[0] {
			t.Error("not the oldest of the busiest")
		}
	}
	if got := w.counts()[phaseSilent]; got != 10 {
		t.Errorf("%d silent", got)
	}
}

func TestEarlyDrop(t *testing.T) {
	t.Parallel()
	dice := 0.99
	w := newCrowd(Bounds{Handshakes: 40})
	w.dice = func() float64 { return dice }
	list := places(w, "127.0.0.1", 40)
	for n, p := range list {
		if v := w.speak(p); v != nil && n < 39 {
			t.Errorf("handshake %d: somebody had to go on a good throw", n)
		}
	}
	late := places(w, "127.0.0.1", 1)[0]
	if w.speak(late) == nil {
		t.Error("beyond the bound nobody had to go")
	}
	dice = 0.2
	w = newCrowd(Bounds{Handshakes: 40})
	w.dice = func() float64 { return dice }
	dropped := 0
	for n, p := range places(w, "127.0.0.1", 40) {
		if w.speak(p) != nil {
			if dropped++; n < 10 {
				t.Errorf("handshake %d: dropped below a quarter", n)
			}
		}
	}
	if got := w.counts()[phaseHandshake]; got != 10 || dropped != 30 {
		t.Errorf("%d handshakes, %d dropped", got, dropped)
	}
}

func TestTotalBound(t *testing.T) {
	t.Parallel()
	w := newCrowd(Bounds{Total: 3})
	list := places(w, "127.0.0.1", 3)
	w.enter(list[0])
	w.enter(list[1])
	p := &place{local: true}
	if reason, victim := w.arrive(p); reason != dropTotal || victim != list[2] {
		t.Error("the silent one did not make room")
	}
	w.enter(p)
	if reason, victim := w.arrive(&place{local: true}); reason != dropTotal || victim != nil {
		t.Error("somebody who is logged in had to go, or there were too many")
	}
	if got := w.counts(); got.all() != 3 {
		t.Errorf("%v", got)
	}
}

// TestCrowdForgets: nothing is left of connections that have gone, however they went.
func TestCrowdForgets(t *testing.T) {
	t.Parallel()
	w := newCrowd(Bounds{Silent: 3, Handshakes: 4, SourceHandshakes: 2})
	var all []*place
	for i := range 50 {
		p := &place{from: sourceOf(netip.AddrFrom4([4]byte{203, 0, 113, byte(i % 7)}))}
		all = append(all, p)
		w.arrive(p)
		if i%2 == 0 {
			w.speak(p)
		}
		if i%3 == 0 && w.wait(p) && i%6 == 0 {
			w.resume(p)
		}
		if i%5 == 0 {
			w.seat(p, int64(i%3+1))
			w.enter(p)
		}
	}
	for _, p := range all {
		w.leave(p)
		w.leave(p)
	}
	if w.counts() != (tally{}) || len(w.sources) != 0 || len(w.accounts) != 0 || len(w.silent) != 0 || len(w.shaking) != 0 {
		t.Errorf("left: %v, %d sources, %d silent, %d handshakes", w.counts(), len(w.sources), len(w.silent), len(w.shaking))
	}
}

// TestSilentSocketsKeepNobodyOut: a thousand silent sockets, from the same address
// and before and after them a login.
func TestSilentSocketsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Bounds.Silent, o.Bounds.Handshakes = 100, 100 })
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
	eventually(t, 30*time.Second, "all at the door", func() bool { return b.gate.Stats().Accepted == 1000 })
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
	eventually(t, 30*time.Second, "bounded", func() bool { s := b.gate.Stats(); return s.Silent+s.Handshaking <= 200 && s.Dropped > 0 })
}

// TestAccountBound: one account cannot take the places of all others, and has its own
// back when it leaves.
func TestAccountBound(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Bounds.Account = 2 })
	first := b.mustDial(b.alice)
	b.mustDial(b.newKey("alice", 1))
	_, banner, err := b.dial("x", ssh.PublicKeys(b.alice.signer))
	if err == nil || !strings.Contains(banner, "this account has too many connections open") {
		t.Errorf("a third one: %v, %q", err, banner)
	}
	b.mustDial(b.newKey("bob", 2))
	first.Close()
	eventually(t, 30*time.Second, "a place", func() bool {
		client, _, err := b.dial("x", ssh.PublicKeys(b.alice.signer))
		if err == nil {
			client.Close()
		}
		return err == nil
	})
	if want := (Bounds{Total: 1}).withDefaults(); want.Account != 1 {
		t.Errorf("%+v", want)
	}
}
