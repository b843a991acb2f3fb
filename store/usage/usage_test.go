package usage

import (
	"testing"
	"time"

	"relay/store/db"
)

// bound returns the allowed bytes of an alias above its limit, after each of several changes.
func TestBoundAboveTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 1000
	b := bytesStored{}
	for i, step := range []struct{ add, bound int64 }{
		{900, limit},   // the alias is within its limit
		{4100, 5000},   // the alias is far above its limit and may store no more
		{200, 5000},    // a long response, for example, is stored although it is not allowed
		{-1200, 4400},  // half of the removed bytes may be used again
		{-1500, 3650},  // EvictOverLimit has removed these bytes before requests could use them
		{-1, 3650},     // halves are rounded up
		{-1500, limit}, // the alias is within its limit again
		{601, 1600},
		{-2000, limit}, // the alias is removed
	} {
		b.add(step.add)
		if got := b.bound(limit); got != step.bound {
			t.Errorf("step %d: with %d bytes it may have %d, want %d", i, b.bytes, got, step.bound)
		}
	}
}

// A holder that falls below its limit because other nodes removed events may have no more than its limit
// afterwards.
func TestBoundOfAHolderWithoutRequests(t *testing.T) {
	t.Parallel()
	const limit = 1000
	u := New(&db.DB{}, Options{AliasLimit: limit})
	u.counted = true
	of := &bytesStored{bytes: 5000}
	of.bound(limit)
	u.aliases[1] = of
	if list := u.OverLimit(false); len(list) != 1 || !u.IsOver(list[0]) {
		t.Fatalf("above its limit: %v", list)
	}
	of.add(-4500)
	if list := u.OverLimit(false); len(list) != 0 {
		t.Errorf("within its limit: %v", list)
	}
	of.add(600)
	if got := of.bound(limit); got != 1100 {
		t.Errorf("it may have %d bytes", got)
	}
	of.full = time.Now()
	if u.IsOver(Holder{ID: 1}) {
		t.Error("nothing of it could be evicted a moment ago")
	}
}
