package store

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"

	"relay"
)

const (
	orphanAge   = time.Hour // of an event id, before bytes without an event count as left over
	orphanEvery = 20 * time.Minute
	orphanWhole = 24 * time.Hour // between two sweeps through all that is stored
	orphanBack  = 6 * time.Hour  // that others look at again: a body may take long to come in
	orphanPage  = 500
)

// orphans is what one sweep leaves to the next.
type orphans struct {
	parts map[relay.ID]int // of bodies that had no event: one that still comes in grows
	to    relay.ID         // all before it was looked at
	whole time.Time        // when that last began with the oldest
}

// from is the event behind which a sweep up to before has to begin. What a relay that was
// killed left is found by the first sweep, and what is much older than the last one was
// left by a removal that failed: that has time.
func (o *orphans) from(now time.Time, before relay.ID) relay.ID {
	if since := now.Sub(o.whole); since < 0 || since >= orphanWhole || less(before, o.to) {
		return relay.ID{}
	}
	from := lowestID(o.to.Time().Add(-orphanBack))
	for id := range o.parts {
		if less(id, from) {
			from = id
		}
	}
	return preceding(from)
}

// preceding is the last id before id, the lowest for the lowest.
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

// SweepOrphans deletes, as of now, parts of bodies whose event never came: that of a
// request that broke off, or of a relay that was killed. They have to be older than
// an hour and the same in two sweeps running. It gives how many bodies went. The first
// sweep, and one a day, looks at all that is stored, the others at the last hours. The
// serving process does it by itself.
func (s *Store) SweepOrphans(ctx context.Context, now time.Time) (total int, err error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	before := lowestID(now.Add(-orphanAge))
	from, next := s.orphans.from(now, before), orphans{parts: map[relay.ID]int{}, to: before, whole: s.orphans.whole}
	if from.IsZero() {
		next.whole = now
	}
	for _, l := range []leftover{leftParts, leftPayloads} {
		n, err := s.sweepTable(ctx, l, from, before, next.parts)
		total += n
		if err != nil {
			return total, err
		}
	}
	s.orphans = next
	if total > 0 {
		s.gone.orphans.Add(int64(total))
		s.log.Info("left-over parts of bodies removed", "bodies", total)
		err = s.vacuum(ctx)
	}
	return total, err
}

// sweepTable deletes the orphans of one table, page by page.
func (s *Store) sweepTable(ctx context.Context, l leftover, after, before relay.ID, seen map[relay.ID]int) (total int, err error) {
	for {
		page, lost, err := s.lostRows(ctx, l.table, after, before)
		if err != nil || len(page) == 0 {
			return total, err
		}
		after = page[len(page)-1].ID
		var old []relay.ID
		for _, r := range lost {
			// Only parts are stored before their event.
			if l.table != leftParts.table || s.orphans.parts[r.ID] == r.Rows {
				old = append(old, r.ID)
			} else {
				seen[r.ID] = r.Rows
			}
		}
		if err := s.removeRest(ctx, l, old); err != nil {
			return total, err
		}
		total += len(old)
	}
}

// lostRows reads the next events of a table with bytes, and which of them are not
// there.
func (s *Store) lostRows(ctx context.Context, table string, after, before relay.ID) (page, lost []orphanRow, err error) {
	err = s.view(ctx, "look for left-over bodies", func(q session) error {
		page, lost = nil, nil
		if err := q.all(&page, `SELECT event_id AS id, COUNT(*) AS parts FROM `+table+`
			WHERE event_id > ? AND event_id < ? GROUP BY event_id ORDER BY event_id LIMIT ?`, after, before, orphanPage); err != nil || len(page) == 0 {
			return err
		}
		ids := make([]relay.ID, len(page))
		for i := range page {
			ids[i] = page[i].ID
		}
		query, args, err := sqlx.In(`SELECT id FROM events WHERE id IN (?) AND id >= ? AND id <= ?`, values(ids), ids[0], ids[len(ids)-1]) // days apart are not asked
		if err != nil {
			return err
		}
		var there []relay.ID
		if err := q.all(&there, query, args...); err != nil {
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

// keepClean sweeps orphans until ctx ends.
func (s *Store) keepClean(ctx context.Context) {
	tick := time.NewTicker(orphanEvery)
	defer tick.Stop()
	for {
		if _, err := s.SweepOrphans(ctx, s.now()); err != nil && ctx.Err() == nil {
			s.log.Warn("left-over bodies cannot be removed now", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
