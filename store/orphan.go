package store

import (
	"context"
	"time"

	"relay"
)

const (
	// orphanAge is the age of an event id from which on bytes without an event are orphans. The
	// parts of a body are stored before its event, and a body may take long to arrive; an event
	// whose parts are gone then is refused (errPartsLost).
	orphanAge     = 24 * time.Hour
	sweepInterval = 24 * time.Hour
	orphanPage    = 500
)

// SweepOrphans deletes bodies that have no event although their id is a day old at the time
// now: the request broke off, the relay was killed, or a removal failed. It returns how many
// bodies it deleted. The serving process does this at its start and once a day.
func (s *Store) SweepOrphans(ctx context.Context, now time.Time) (total int, err error) {
	before := lowestID(now.Add(-orphanAge))
	for _, table := range []orphanTable{orphanParts, orphanPayloads} {
		for after := (relay.ID{}); ; {
			page, orphans, err := s.orphansInPage(ctx, table.name, after, before)
			if err != nil {
				return total, err
			}
			if len(page) == 0 {
				break
			}
			after = page[len(page)-1]
			if err := s.removeOrphanRows(ctx, table, orphans); err != nil {
				return total, err
			}
			total += len(orphans)
		}
	}
	if total == 0 {
		return 0, nil
	}
	s.retentionCounts.orphans.Add(int64(total))
	s.log.Info("orphaned parts of bodies removed", "bodies", total)
	return total, s.vacuum(ctx)
}

// orphansInPage reads the next event ids of a table, and which of these events do not
// exist.
func (s *Store) orphansInPage(ctx context.Context, table string, after, before relay.ID) (page, orphans []relay.ID, err error) {
	err = s.view(ctx, "look for orphaned bodies", func(q session) error {
		if err := q.all(&page, `SELECT event_id FROM `+table+` WHERE event_id > ? AND event_id < ?
			GROUP BY event_id ORDER BY event_id LIMIT ?`, after, before, orphanPage); err != nil || len(page) == 0 {
			return err
		}
		var there []relay.ID
		// With the bounds Postgres skips the partitions of other days.
		if err := q.allIn(&there, `SELECT id FROM events WHERE id IN (?) AND id >= ? AND id <= ?`, page, page[0], page[len(page)-1]); err != nil {
			return err
		}
		known := make(map[relay.ID]bool, len(there))
		for _, id := range there {
			known[id] = true
		}
		for _, id := range page {
			if !known[id] {
				orphans = append(orphans, id)
			}
		}
		return nil
	})
	return page, orphans, err
}
