package store

import (
	"context"
	"database/sql"
)

// warm opens the connections of the committers again, and makes sure of the serve
// lock after that: a connection that is opened later says that the database was
// away once more.
func (s *Store) warm(ctx context.Context) error {
	if s.journal == nil || s.lock == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.unsure.Store(false)
	var held []*sql.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close() // back to the pool
		}
	}()
	for range s.d.commit {
		for {
			c, err := s.journal.Conn(ctx)
			if err != nil {
				return err
			}
			if c.PingContext(ctx) == nil {
				held = append(held, c)
				break
			}
			_ = c.Close() // broken; the pool drops it
		}
	}
	if s.unsure.Swap(false) && !s.fenced.Load() && !s.holdLock(ctx) {
		s.unsure.Store(true)
		return errLockUnsure
	}
	return nil
}

// adopt writes what earlier processes left in the data dir to the database, under
// the serve lock and before anything is swept: their attempts may have ended.
func (s *Store) adopt(ctx context.Context) error {
	if s.spool == nil {
		return nil
	}
	if err := s.spool.load(); err != nil {
		return err
	}
	if !s.spool.active() {
		return s.warm(ctx)
	}
	s.log.Info("storing what waits in the spool of an earlier run", "bytes", s.spool.size())
	return s.drain(ctx, s.mayDrain)
}

// adoptAsStandby does the same while another relayd serves: this one may wait for
// long, and what it once answered belongs into the database. Claims of an earlier
// run disturb nobody.
func (s *Store) adoptAsStandby(ctx context.Context) error {
	if s.spool == nil {
		return nil
	}
	if err := s.spool.load(); err != nil || !s.spool.active() {
		return err
	}
	return s.drain(ctx, func(context.Context) bool { return true })
}
