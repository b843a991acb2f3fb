package retention

import (
	"context"
	"math"
	"strconv"
	"time"

	"relay/store/db"
)

const (
	freePages  = 1024             // pages kept free in the SQLite file for new events, in addition to 2 % of the file
	vacuumTime = time.Millisecond // time for freeing pages in one transaction
)

// vacuum returns free pages of the SQLite file to the file system in short transactions. If the disk is full
// it returns all free pages, otherwise only pages that new events will not need soon.
func (r *Retention) vacuum(ctx context.Context) error {
	if r.db.Dialect.SeveralNodes() {
		return nil // Postgres has autovacuum
	}
	for least := int64(math.MaxInt64); ; {
		var pages, free int64
		if err := r.db.View(ctx, "count free pages", func(q db.Query) error {
			if err := q.Get(&pages, `PRAGMA page_count`); err != nil {
				return err
			}
			return q.Get(&free, `PRAGMA freelist_count`)
		}); err != nil {
			return err
		}
		keep := freePages + pages/50
		if r.db.Disk.Low() != nil {
			keep = 0
		}
		if free <= keep || pages >= least { // if the last round freed no page, the file has no auto_vacuum
			r.db.CheckpointAll(ctx) // the file shrinks when the log is checkpointed
			return nil
		}
		least = pages
		err := r.pacedUpdate(ctx, "give free pages back", func(c *db.Tx, _ int) error {
			// The statement frees one page for each row that is read, and keeps its
			// progress when it is closed early.
			rows, err := c.Handle.QueryContext(c.Ctx, `PRAGMA incremental_vacuum(`+strconv.FormatInt(free-keep, 10)+`)`) // a pragma takes no parameters
			if err != nil {
				return err
			}
			began := time.Now()
			for rows.Next() && time.Since(began) < vacuumTime {
				continue
			}
			if err := rows.Close(); err != nil {
				return err
			}
			return rows.Err()
		})
		if err != nil {
			return err
		}
	}
}
