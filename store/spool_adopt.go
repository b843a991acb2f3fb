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
// the serve lock and before anything is swept: their attempts may have ended. Also
// where there is to be no spool any more.
func (s *Store) adopt(ctx context.Context) error {
	p := s.spool
	if p == nil {
		if p = s.bequest(); p == nil {
			return nil
		}
		defer func() { _ = p.close() }() // empty, unless ctx ended
	}
	if err := p.load(s.node); err != nil {
		return err
	}
	if p.active() {
		s.log.Info("storing what waits in the spool of an earlier run", "bytes", p.size())
		return s.drain(ctx, p, s.mayDrain)
	}
	if s.spool == nil {
		return nil
	}
	return s.warm(ctx)
}

// bequest is the spool of an earlier run where this one has none; nil when nothing was
// left.
func (s *Store) bequest() *spool {
	if s.opt.DataDir == "" || len(leftSegments(s.opt.DataDir)) == 0 {
		return nil
	}
	if !s.d.bulk {
		s.log.Warn("files of a spool wait in the data dir for the Postgres database that they were made for; they are stored when relayd runs with it and this data dir",
			"dir", s.opt.DataDir)
		return nil
	}
	o := s.opt
	o.SpoolLimit = 1 // nothing is put into it
	return newSpool(o, s.place())
}

// adoptAsStandby does the same while another relayd serves: this one may wait for
// long, and what it once answered belongs into the database. Claims of an earlier
// run disturb nobody.
func (s *Store) adoptAsStandby(ctx context.Context) error {
	if s.spool == nil {
		return nil
	}
	if err := s.spool.load(s.node); err != nil || !s.spool.active() {
		return err
	}
	return s.drain(ctx, s.spool, func(context.Context) bool { return true })
}
