package main

import "testing"

// TestGarbagePercent: the garbage collector runs when the heap reaches 96 MiB or twice the memory in use,
// whichever is larger.
func TestGarbagePercent(t *testing.T) {
	t.Parallel()
	for inUse, want := range map[uint64]int{0: 2300, 4 << 20: 2300, 24 << 20: 300, 48 << 20: 100, 1 << 30: 100} {
		if got := garbagePercent(inUse); got != want {
			t.Errorf("with %d bytes in use: %d %%, want %d %%", inUse, got, want)
		}
	}
}
