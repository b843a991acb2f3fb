package spares

import "testing"

// TestWantedSpares: a pool wants at least one spare for a tunnel of its own node, and none for one of another
// node. With requests in progress it wants as many spares as there are requests, up to maxSpares.
func TestWantedSpares(t *testing.T) {
	t.Parallel()
	for remote, least := range map[bool]int{false: 1, true: 0} {
		p := New(Options{Remote: remote})
		t.Cleanup(p.Close)
		if n := p.wanted(); n != least {
			t.Errorf("remote %v: %d spares without requests, want %d", remote, n, least)
		}
		for i := range maxSpares + 2 {
			p.Begin()
			if n := p.wanted(); n != min(i+1, maxSpares) {
				t.Errorf("remote %v: %d spares for %d requests", remote, n, i+1)
			}
		}
	}
}
