package store

import (
	"context"

	"relay"
)

// drainLanes is how many connections write the spool.
const drainLanes = 2

// lane is what one connection writes of a portion.
type lane struct {
	chunks, rows []*step
	mark         string // says in the database how far it is, see mark
	to           int64
	changes      []relay.Change
	err          error
}

// write makes the parts of bodies durable first, as a committer does.
func (l *lane) write(ctx context.Context, s *Store, pen *penman) {
	if len(l.chunks) > 0 {
		_, l.err = s.inBatch(ctx, pen, func(w *writer) error {
			steps, _, err := w.unmarked(l, l.chunks)
			if err != nil || len(steps) == 0 {
				return err
			}
			return w.putChunks(steps)
		})
	}
	if len(l.rows) > 0 && l.err == nil {
		l.changes, l.err = s.inBatch(ctx, pen, func(w *writer) error {
			steps, there, err := w.unmarked(l, l.rows)
			if err == nil {
				err = w.retell(there)
			}
			if err != nil || len(steps) == 0 {
				return err
			}
			if err := s.putRows(w, steps); err != nil {
				return err
			}
			return w.mark(l)
		})
	}
}
