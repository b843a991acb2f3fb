package retention

import (
	"testing"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/plantest"
	"relay/store/schematest"
	"relay/store/usage"
)

// Retention uses an index and never scans the whole store.
func TestPostgresPlans(t *testing.T) {
	t.Parallel()
	s := open(t, schematest.URL(t), usage.Options{})
	s.opt.Age = 1000 * time.Hour
	s.aliases(t, 20)
	p := plantest.Attach(t, s.db)
	plantest.Fill(t, s.db)
	ctx, now := t.Context(), time.Now()
	var all []relay.ID
	if err := s.db.Read.Select(&all, `SELECT id FROM events ORDER BY id`); err != nil {
		t.Fatal(err)
	}
	middle := all[len(all)/2]
	p.Planned(t, "removal of an alias", func() error {
		left := int64(2)
		_, err := s.removeOldest(ctx, usage.Holder{ID: 3}, events.LastID, time.Time{}, func(*db.Tx) (int64, error) { left--; return left, nil }, nil)
		return err
	})
	p.Planned(t, "orphans", func() error { _, _, err := s.orphansInPage(ctx, "payloads", relay.ID{}, middle); return err })
	p.Planned(t, "retention", func() error {
		list, err := s.removalCandidates(ctx, usage.Holder{ID: 4}, removalRange{before: middle, now: now})
		if err == nil {
			_, _, _, err = s.remove(ctx, usage.Holder{ID: 4}, list, now, nil)
		}
		return err
	})
	p.Planned(t, "retention of days", func() error { _, err := s.dropDays(ctx, now); return err })
}
