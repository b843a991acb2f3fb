package retention

import (
	"context"
	"slices"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
)

const (
	// OrphanAge is the age of an event id from which bytes without an event are orphans. The parts of a body
	// are stored before its event, and a body may take long to arrive. If it takes longer than OrphanAge, its
	// parts are deleted and the event is refused (ErrPartsLost).
	OrphanAge     = 24 * time.Hour
	SweepInterval = 24 * time.Hour
	orphanPage    = 500
	// orphanAgeSpool replaces OrphanAge while only a part of a spool is stored, because the other part may be in
	// a data dir that no process serves now. The row of a spool in spool_marks is removed if it has not changed
	// for orphanAgeSpool.
	orphanAgeSpool = 30 * 24 * time.Hour
)

// SweepOrphans deletes bodies that have no event although their id is older than OrphanAge at the time now.
// Such bodies are left if a request was aborted, the relay was killed, or a removal failed. It returns the
// number of deleted bodies. It deletes none while steps wait in a spool, because these may contain the events
// of old bodies.
func (r *Retention) SweepOrphans(ctx context.Context, now time.Time) (total int, err error) {
	for _, table := range []orphanTable{orphanParts, orphanPayloads} {
		for after := (relay.ID{}); ; {
			age, err := r.orphanAge(ctx) // the age is read for each page, because a spool may begin to fill at any time
			if err != nil || age == 0 {
				return total, err
			}
			before := events.LowestID(now.Add(-age))
			page, orphans, err := r.orphansInPage(ctx, table.name, after, before)
			if err != nil {
				return total, err
			}
			if len(page) == 0 {
				break
			}
			after = page[len(page)-1]
			if err := r.removeOrphanRows(ctx, table, orphans); err != nil {
				return total, err
			}
			total += len(orphans)
		}
	}
	if total == 0 {
		return 0, nil
	}
	r.counts.Orphans.Add(int64(total))
	r.log.Info("orphaned parts of bodies removed", "bodies", total)
	return total, r.vacuum(ctx)
}

// orphanAge returns the age of an id from which a body without an event is an orphan; 0 = no body is an
// orphan now.
func (r *Retention) orphanAge(ctx context.Context) (time.Duration, error) {
	waits, err := r.SpoolWaits(ctx)
	if err != nil || waits {
		return 0, err
	}
	age := OrphanAge
	err = r.db.View(ctx, "look for spools", func(q db.Query) error {
		partly, err := q.Exists(`SELECT 1 FROM spool_marks LIMIT 1`) // a spool that was stored in full leaves no mark
		if partly {
			age = orphanAgeSpool
		}
		return err
	})
	return age, err
}

// orphansInPage reads the next event ids of a table, and returns the ids without an event.
func (r *Retention) orphansInPage(ctx context.Context, table string, after, before relay.ID) (page, orphans []relay.ID, err error) {
	err = r.db.View(ctx, "look for orphaned bodies", func(q db.Query) error {
		if err := q.All(&page, `SELECT event_id FROM `+table+` WHERE event_id > ? AND event_id < ?
			GROUP BY event_id ORDER BY event_id LIMIT ?`, after, before, orphanPage); err != nil || len(page) == 0 {
			return err
		}
		var there []relay.ID
		// With these bounds Postgres skips the partitions of other days.
		if err := q.AllIn(&there, `SELECT id FROM events WHERE id IN (?) AND id >= ? AND id <= ?`, page, page[0], page[len(page)-1]); err != nil {
			return err
		}
		orphans = slices.DeleteFunc(slices.Clone(page), func(id relay.ID) bool { return slices.Contains(there, id) })
		return nil
	})
	return page, orphans, err
}

// SpoolWaits reports whether steps wait in the spool of this node or, according to the reports of the other
// nodes, in another spool.
func (r *Retention) SpoolWaits(ctx context.Context) (waits bool, err error) {
	if r.spool.Active.Load() || !r.db.Dialect.SeveralNodes() {
		return r.spool.Active.Load(), nil
	}
	err = r.db.View(ctx, "look for spools", func(q db.Query) error {
		waits, err = q.Exists(`SELECT 1 FROM nodes WHERE spool_steps > 0 AND state <> ?`, relay.NodeDead)
		return err
	})
	return waits, err
}
