package retention

import (
	"testing"
	"time"

	"relay/store/events"
	"relay/store/schematest"
	"relay/store/usage"
)

// If a replay stores bytes after its event was chosen for removal, the removal subtracts them from the stored
// bytes of the alias too.
func TestRemovalCountsWhatAReplayAdded(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"sqlite": "", "postgres": schematest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, address, usage.Options{AliasLimit: 1 << 40})
			alias := s.aliases(t, 1)
			if err := s.usage.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			id := s.insert(t, alias, time.Now())
			s.payload(t, id, alias, 0, 10)
			s.payload(t, id, alias, 1, 10_000)
			list, err := s.removalCandidates(t.Context(), usage.Holder{ID: alias}, removalRange{before: events.LastID, now: s.db.Now()})
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			s.payload(t, id, alias, 2, 10_000)
			n, freed, _, err := s.remove(t.Context(), usage.Holder{ID: alias}, list, s.db.Now(), nil)
			if left := s.usage.Total(); err != nil || n != 1 || left != 0 {
				t.Errorf("%d events of %d bytes were removed (%v), and %d bytes are still counted", n, freed, err, left)
			}
		})
	}
}

// An eviction whose time is over begins no transaction; the next eviction continues.
func TestEvictionEndsAtItsTime(t *testing.T) {
	t.Parallel()
	s := open(t, "", usage.Options{AliasLimit: 1000})
	alias := s.aliases(t, 1)
	if err := s.usage.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.payload(t, s.insert(t, alias, time.Now()), alias, 0, 2000)
	h := usage.Holder{ID: alias}
	before := s.usage.Total()
	s.evict(t.Context(), h, 0, true, time.Now())
	if left := s.usage.Total(); left != before {
		t.Errorf("%d bytes were removed after the time", before-left)
	}
	s.evict(t.Context(), h, 0, true, time.Now().Add(time.Minute))
	if left := s.usage.Total(); left != 0 {
		t.Errorf("%d bytes are left of %d", left, before)
	}
}
