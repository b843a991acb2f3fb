package admission

import (
	"net/netip"
	"testing"
	"time"

	"relay/sockets"
)

func TestPenalties(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p := NewPenalties(func() time.Time { return now })
	a, b := sockets.SourceOf(netip.MustParseAddr("203.0.113.9")), sockets.SourceOf(netip.MustParseAddr("2001:db8::1"))
	if b != sockets.SourceOf(netip.MustParseAddr("2001:db8::ffff")) || b == sockets.SourceOf(netip.MustParseAddr("2001:db8:0:1::1")) {
		t.Error("IPv6 goes by /64")
	}
	if a != sockets.SourceOf(netip.MustParseAddr("::ffff:203.0.113.9")) {
		t.Error("a mapped address is the IPv4 one")
	}
	p.Add(a, PenaltyRefused)
	p.Add(a, PenaltyRefused)
	if p.Left(a) != 0 {
		t.Error("rejected too early")
	}
	p.Add(a, PenaltyRefused)
	if got := p.Left(a); got != 15*time.Second || p.Left(b) != 0 || p.Sources() != 1 {
		t.Errorf("left %v, other %v", got, p.Left(b))
	}
	now = now.Add(14 * time.Second)
	if got := p.Left(a); got != time.Second {
		t.Errorf("left %v", got)
	}
	now = now.Add(2 * time.Second)
	if p.Left(a) != 0 || p.Sources() != 0 {
		t.Error("rejected after it was paid")
	}
	p.Add(a, PenaltyRefused)
	if p.Left(a) != 0 {
		t.Error("what was paid counts again")
	}
	for range 1000 {
		p.Add(b, PenaltySlow)
	}
	if got := p.Left(b); got != penaltyMax {
		t.Errorf("left %v, want at most %v", got, penaltyMax)
	}
	p.Forgive(b)
	if p.Left(b) != 0 {
		t.Error("not forgiven")
	}
}

func TestPenaltiesAreBounded(t *testing.T) {
	t.Parallel()
	p := NewPenalties(time.Now)
	for i := range maxPenalties + 1000 {
		p.Add(sockets.SourceOf(netip.AddrFrom4([4]byte{9, byte(i >> 16), byte(i >> 8), byte(i)})), PenaltySlow)
	}
	if len(p.bySource) > maxPenalties {
		t.Errorf("%d remembered", len(p.bySource))
	}
}

// TestEventsUntilASourceIsRejected counts how often each event must happen until its source is
// rejected. docs/limits.md has the penalties.
func TestEventsUntilASourceIsRejected(t *testing.T) {
	t.Parallel()
	a := sockets.SourceOf(netip.MustParseAddr("203.0.113.9"))
	for cost, times := range map[time.Duration]int{PenaltyRefused: 3, PenaltySlow: 2, PenaltyNothing: 15} {
		now := time.Unix(1_800_000_000, 0)
		p := NewPenalties(func() time.Time { return now })
		for n := range times {
			if left := p.Left(a); left != 0 {
				t.Errorf("a penalty of %v: rejected after %d, for %v", cost, n, left)
			}
			p.Add(a, cost)
		}
		if p.Left(a) == 0 {
			t.Errorf("a penalty of %v: not rejected after %d", cost, times)
		}
	}
}
