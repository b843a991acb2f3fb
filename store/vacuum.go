package store

import (
	"context"
	"math"
	"strconv"
	"time"
)

const (
	freePages  = 1024             // kept free within the SQLite file, beside a fiftieth of it: new events go there
	vacuumTime = time.Millisecond // of giving pages back in one transaction
)

// vacuum gives pages of the SQLite file that deletes left free back to the disk, in
// short transactions. All of them when the disk is full, else those beyond what new
// events need soon.
func (s *Store) vacuum(ctx context.Context) error {
	if s.d.bulk {
		return nil // autovacuum does that
	}
	for least := int64(math.MaxInt64); ; {
		var pages, free int64
		if err := s.view(ctx, "count free pages", func(q session) error {
			if err := q.get(&pages, `PRAGMA page_count`); err != nil {
				return err
			}
			return q.get(&free, `PRAGMA freelist_count`)
		}); err != nil {
			return err
		}
		keep := freePages + pages/50
		if s.disk.low() != nil {
			keep = 0
		}
		if free <= keep || pages >= least { // the last round gave none back: the file was made by something else, without auto_vacuum
			s.moveLog(ctx, logState.waits) // the file shrinks by that
			return nil
		}
		least = pages
		err := s.brief(ctx, "give free pages back", func(c *change, _ int) error {
			// The statement works as it is stepped through, a page a row, and keeps what
			// it did when it is left early.
			rows, err := c.q.QueryContext(c.ctx, incrementalVacuum(free-keep))
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

// incrementalVacuum is the statement for n pages; a pragma takes no parameters.
func incrementalVacuum(n int64) string {
	return `PRAGMA incremental_vacuum(` + strconv.FormatInt(n, 10) + `)`
}
