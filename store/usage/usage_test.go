package usage

import "testing"

// What an alias may have above its limit, step by step.
func TestBoundAboveTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 1000
	b := bytesStored{}
	for i, step := range []struct{ add, bound int64 }{
		{900, limit},   // within it
		{4100, 5000},   // far above: no more
		{200, 5000},    // stored although it did not fit, such as a long response
		{-1200, 4400},  // half of what is removed may be used
		{-1500, 3650},  // by the loop, which is faster than the requests
		{-1, 3650},     // halves are rounded up
		{-1500, limit}, // within the limit again
		{601, 1600},
		{-2000, limit}, // an alias that is removed
	} {
		b.add(step.add)
		if got := b.bound(limit); got != step.bound {
			t.Errorf("step %d: with %d bytes it may have %d, want %d", i, b.bytes, got, step.bound)
		}
	}
}
