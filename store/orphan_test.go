package store

import (
	"testing"
	"time"

	"relay"
)

// Only the first sweep and one a day look at all that is stored; the others begin some
// hours before the end of the last one, or at what that saw and did not remove yet.
func TestSweepsLookAtWhatCame(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(ago time.Duration) relay.ID { return lowestID(now.Add(-ago)) }
	last := orphans{sweptUntil: at(2 * time.Hour), fullSweepAt: now.Add(-time.Hour)}
	growing := last
	growing.parts = map[relay.ID]int{at(50 * time.Hour): 1, at(30 * time.Hour): 2}
	for what, c := range map[string]struct {
		o    orphans
		now  time.Time
		want relay.ID
	}{
		"first":                {orphans{}, now, relay.ID{}},
		"next":                 {last, now, at(2*time.Hour + orphanOverlap)},
		"something came in":    {growing, now, at(50 * time.Hour)},
		"a day later":          {last, now.Add(fullSweepInterval), relay.ID{}},
		"the clock went back":  {last, now.Add(-2 * time.Hour), relay.ID{}},
		"it was ahead by less": {last, now.Add(-90 * time.Minute), relay.ID{}},
	} {
		before := lowestID(c.now.Add(-orphanAge))
		got := c.o.start(c.now, before)
		if c.want.IsZero() != got.IsZero() || !c.want.IsZero() && (!less(got, c.want) || less(got, lowestID(c.want.Time().Add(-time.Millisecond)))) {
			t.Errorf("%s: from %v, want just before %v", what, got.Time(), c.want.Time())
		}
	}
	if id := preceding(relay.ID{1}); id[0] != 0 || id[1] != 0xff || id[15] != 0xff {
		t.Errorf("%x precedes 0100…", id)
	}
}

// Bytes that a removal left behind the last sweep go within a day, as those of a large
// event whose removal failed.
func TestSweepOfADay(t *testing.T) {
	t.Parallel()
	s := serveSQLite(t)
	swept := func() bool { // the one at the start, by the store itself
		s.sweepMu.Lock()
		defer s.sweepMu.Unlock()
		return !s.orphans.fullSweepAt.IsZero()
	}
	for late := time.Now().Add(time.Minute); !swept(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the store does not sweep at its start")
		}
	}
	now := time.Now()
	sweep := func(at time.Time, want int) {
		t.Helper()
		if n, err := s.SweepOrphans(t.Context(), at); err != nil || n != want {
			t.Errorf("swept %d, want %d (%v)", n, want, err)
		}
	}
	sweep(now, 0)
	id := lowestID(now.Add(-100 * time.Hour))
	settle(t, s.Chunk(id, 0, 0, []byte("left")))
	sweep(now.Add(orphanInterval), 0)
	sweep(now.Add(2*orphanInterval), 0)
	sweep(now.Add(fullSweepInterval), 0)
	sweep(now.Add(fullSweepInterval+orphanInterval), 1)
	sweep(now.Add(fullSweepInterval+2*orphanInterval), 0)
}
