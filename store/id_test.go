package store_test

import (
	"slices"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// After the clock was set back and the store restarted, a list up to a time has exactly the events that
// arrived by then. This holds while ids are ahead of the clock, and after the clock has caught up.
func TestListUntilAfterTheClockWasSetBack(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		ahead := func(by time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(by) } }
		capture := func(s *store.Store, alias int64, at time.Time) relay.ID {
			e := eventAt(s, alias, at, relay.StateDelivering, "x")
			e.ID = s.NewID()
			return stored(t, s, e)
		}
		o.Now = ahead(5 * time.Hour)
		s := mustServe(t, o)
		alias := withAlias(t, s)
		before := capture(s, alias, time.Now().Add(5*time.Hour))
		var back relay.ID
		for _, by := range []time.Duration{0, 6 * time.Hour} {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			o.Now = ahead(by)
			s = mustServe(t, o)
			if by == 0 {
				back = capture(s, alias, time.Now())
			}
			page, err := s.Events(t.Context(), system, relay.Filter{Alias: "hooks", Until: time.Now().Add(time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			var ids []relay.ID
			for _, e := range page.Events {
				ids = append(ids, e.ID)
			}
			if !slices.Equal(ids, []relay.ID{back}) {
				t.Errorf("with the clock at %v: %v; want %v, and not %v", by, ids, back, before)
			}
		}
	})
}
