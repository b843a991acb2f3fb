package store

import (
	"testing"
	"time"

	"relay"
)

// Parts of a body whose event never came go when their id is a day old; those of a body that
// may still arrive, and those of an event, stay.
func TestOrphansAreSwept(t *testing.T) {
	t.Parallel()
	s := serveSQLite(t)
	now := time.Now()
	for _, ago := range []time.Duration{25 * time.Hour, 100 * time.Hour, 23 * time.Hour} {
		settle(t, s.Chunk(lowestID(now.Add(-ago)), 0, 0, []byte("left")))
	}
	for _, want := range []int{2, 0} {
		if n, err := s.SweepOrphans(t.Context(), now); err != nil || n != want {
			t.Errorf("swept %d, want %d (%v)", n, want, err)
		}
	}
	var left []relay.ID
	if err := s.read.Select(&left, `SELECT event_id FROM body_chunks`); err != nil || len(left) != 1 || left[0] != lowestID(now.Add(-23*time.Hour)) {
		t.Errorf("left are %v (%v)", left, err)
	}
}
