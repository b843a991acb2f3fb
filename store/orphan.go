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
	orphanPage  = 500
)

// orphans remembers between two sweeps which bodies had no event, and how many parts:
// one that still comes in grows.
type orphans map[relay.ID]int

type orphanRow struct {
	ID   relay.ID `db:"id"`
	Rows int      `db:"parts"`
}

// SweepOrphans deletes, as of now, parts of bodies whose event never came: that of a
// request that broke off, or of a relay that was killed. They have to be older than
// an hour and the same in two sweeps running. It gives how many bodies went. The
// serving process does it by itself.
func (s *Store) SweepOrphans(ctx context.Context, now time.Time) (total int, err error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	seen := orphans{}
	for _, l := range []leftover{leftParts, leftPayloads} {
		n, err := s.sweepTable(ctx, l, lowestID(now.Add(-orphanAge)), seen)
		total += n
		if err != nil {
			return total, err
		}
	}
	s.orphans = seen
	if total > 0 {
		s.gone.orphans.Add(int64(total))
		s.log.Info("left-over parts of bodies removed", "bodies", total)
		err = s.vacuum(ctx)
	}
	return total, err
}

// sweepTable deletes the orphans of one table, page by page.
func (s *Store) sweepTable(ctx context.Context, l leftover, before relay.ID, seen orphans) (total int, err error) {
	var after relay.ID
	for {
		page, lost, err := s.lostRows(ctx, l.table, after, before)
		if err != nil || len(page) == 0 {
			return total, err
		}
		after = page[len(page)-1].ID
		var old []relay.ID
		for _, r := range lost {
			// Only parts are stored before their event.
			if l.table != leftParts.table || s.orphans[r.ID] == r.Rows {
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
		query, args, err := sqlx.In(`SELECT id FROM events WHERE id IN (?)`, values(ids))
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
