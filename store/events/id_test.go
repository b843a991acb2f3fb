package events

import (
	"testing"
	"time"
)

func TestPrefixEnd(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"/a": "/b", "a\xff": "b", "\xff": ""} {
		if got := prefixEnd([]byte(in)); string(got) != want {
			t.Errorf("prefixEnd(%q) = %q, want %q", in, got, want)
		}
	}
}

// Ids stay in order when many are made in one millisecond and when the clock goes back.
func TestIDOrder(t *testing.T) {
	t.Parallel()
	var s idSource
	now := time.Now()
	last := s.next(now)
	for i := range 20_000 {
		at := now
		if i%2 == 0 {
			at = now.Add(-time.Hour)
		}
		id := s.next(at)
		if !less(last, id) || id[6]>>4 != 7 || id[8]>>6 != 2 {
			t.Fatalf("%x after %x", id, last)
		}
		last = id
	}
	var again idSource
	again.raise(last)
	if id := again.next(now); !less(last, id) {
		t.Errorf("%x after a restart follows %x", id, last)
	}
}
