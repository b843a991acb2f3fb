package store

import (
	"context"
	"time"

	"relay"
)

const (
	orphanAge         = time.Hour // age of an event id from which on its bytes without an event are orphans
	orphanInterval    = 20 * time.Minute
	fullSweepInterval = 24 * time.Hour // between two sweeps of all that is stored
	orphanOverlap     = 6 * time.Hour  // of ids that the other sweeps look at again: a body may take long to arrive
	orphanPage        = 500
)

// orphans is what a sweep remembers for the next one.
type orphans struct {
	parts       map[relay.ID]int // parts of each body without an event; the number grows while the body still arrives
	sweptUntil  relay.ID         // every id before it was looked at
	fullSweepAt time.Time        // when a sweep last began at the oldest id
}

// start is the id after which a sweep up to before has to begin. The first sweep finds
// what a killed relay left. Orphans that are much older than the last sweep come from a
// failed removal and can wait for the next full sweep.
func (o *orphans) start(now time.Time, before relay.ID) relay.ID {
	if since := now.Sub(o.fullSweepAt); since < 0 || since >= fullSweepInterval || less(before, o.sweptUntil) {
		return relay.ID{}
	}
	from := lowestID(o.sweptUntil.Time().Add(-orphanOverlap))
	for id := range o.parts {
		if less(id, from) {
			from = id
		}
	}
	return preceding(from)
}

// preceding is the id before id, or the lowest id if id is the lowest.
func preceding(id relay.ID) relay.ID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]--; id[i] != 0xff {
			return id
		}
	}
	return relay.ID{}
}

type orphanRow struct {
	ID   relay.ID `db:"id"`
	Rows int      `db:"parts"`
}

// SweepOrphans deletes parts of bodies that have no event: the request broke off, or the
// relay was killed. A body is deleted when its id is older than an hour at the time now and
// two sweeps in a row found the same number of parts. It returns how many bodies it
// deleted. The first sweep and one a day look at all that is stored, the others at the
// last hours. The serving process sweeps in the background.
func (s *Store) SweepOrphans(ctx context.Context, now time.Time) (total int, err error) {
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	before := lowestID(now.Add(-orphanAge))
	from, next := s.orphans.start(now, before), orphans{parts: map[relay.ID]int{}, sweptUntil: before, fullSweepAt: s.orphans.fullSweepAt}
	if from.IsZero() {
		next.fullSweepAt = now
	}
	for _, l := range []orphanTable{orphanParts, orphanPayloads} {
		n, err := s.sweepTable(ctx, l, from, before, next.parts)
		total += n
		if err != nil {
			return total, err
		}
	}
	s.orphans = next
	if total > 0 {
		s.retentionCounts.orphans.Add(int64(total))
		s.log.Info("orphaned parts of bodies removed", "bodies", total)
		err = s.vacuum(ctx)
	}
	return total, err
}

// sweepTable deletes the orphans of one table, page by page.
func (s *Store) sweepTable(ctx context.Context, l orphanTable, after, before relay.ID, seen map[relay.ID]int) (total int, err error) {
	for {
		page, lost, err := s.orphansInPage(ctx, l.table, after, before)
		if err != nil || len(page) == 0 {
			return total, err
		}
		after = page[len(page)-1].ID
		var old []relay.ID
		for _, r := range lost {
			// Only parts are stored before their event, and may still get one.
			if l.table != orphanParts.table || s.orphans.parts[r.ID] == r.Rows {
				old = append(old, r.ID)
			} else {
				seen[r.ID] = r.Rows
			}
		}
		if err := s.removeOrphanRows(ctx, l, old); err != nil {
			return total, err
		}
		total += len(old)
	}
}

// orphansInPage reads the next event ids of a table, and which of these events do not
// exist.
func (s *Store) orphansInPage(ctx context.Context, table string, after, before relay.ID) (page, lost []orphanRow, err error) {
	err = s.view(ctx, "look for orphaned bodies", func(q session) error {
		page, lost = nil, nil
		if err := q.all(&page, `SELECT event_id AS id, COUNT(*) AS parts FROM `+table+`
			WHERE event_id > ? AND event_id < ? GROUP BY event_id ORDER BY event_id LIMIT ?`, after, before, orphanPage); err != nil || len(page) == 0 {
			return err
		}
		ids := make([]relay.ID, len(page))
		for i := range page {
			ids[i] = page[i].ID
		}
		var there []relay.ID
		// With the bounds Postgres skips the partitions of other days.
		if err := q.allIn(&there, `SELECT id FROM events WHERE id IN (?) AND id >= ? AND id <= ?`, ids, ids[0], ids[len(ids)-1]); err != nil {
			return err
		}
		known := make(map[relay.ID]bool, len(there))
		for _, id := range there {
			known[id] = true
		}
		for _, r := range page {
			if !known[r.ID] {
				lost = append(lost, r)
			}
		}
		return nil
	})
	return page, lost, err
}

// orphanLoop sweeps until ctx ends.
func (s *Store) orphanLoop(ctx context.Context) {
	tick := time.NewTicker(orphanInterval)
	defer tick.Stop()
	for {
		if s.holdsLease(ctx, leaseOrphans) {
			if _, err := s.SweepOrphans(ctx, s.now()); err != nil && ctx.Err() == nil {
				s.log.Warn("orphaned bodies cannot be removed now", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
