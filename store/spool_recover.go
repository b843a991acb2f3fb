package store

import (
	"context"
	"database/sql"
)

// reconnect opens the connections of the committers again and then checks the serve lock. A
// connection that is opened later means that the database was unreachable once more.
func (s *Store) reconnect(ctx context.Context) error {
	if s.journal == nil || s.lock == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	s.lockUncertain.Store(false)
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
	if s.lockUncertain.Swap(false) && !s.fenced.Load() && !s.holdLock(ctx) {
		s.lockUncertain.Store(true)
		return errLockUncertain
	}
	return nil
}

// recoverSpool writes the spool files that earlier processes left to the database. It runs
// under the serve lock and before the sweep, because the files may hold the ends of attempts.
// It runs also when the spool is turned off now.
func (s *Store) recoverSpool(ctx context.Context) error {
	p := s.spool
	if p == nil {
		if p = s.leftoverSpool(); p == nil {
			return nil
		}
		defer func() { _ = p.close() }() // empty, unless ctx ended
	}
	if err := p.loadLeftSegments(s.spoolID); err != nil {
		return err
	}
	if p.active() {
		s.log.Info("storing what waits in the spool of an earlier run", "bytes", p.size())
		return s.drain(ctx, p, s.mayDrain)
	}
	if s.spool == nil {
		return nil
	}
	return s.reconnect(ctx)
}

// leftoverSpool is the spool of an earlier run, for a run without a spool; nil when there are
// no files.
func (s *Store) leftoverSpool() *spool {
	if s.opt.DataDir == "" || len(leftSegments(s.opt.DataDir)) == 0 {
		return nil
	}
	if !s.d.isPostgres {
		s.log.Warn("files of a spool wait in the data dir for the Postgres database that they were made for; they are stored when relayd runs with it and this data dir",
			"dir", s.opt.DataDir)
		return nil
	}
	o := s.opt
	o.SpoolLimit = 1 // nothing is put into it
	return newSpool(o, s.place())
}

// recoverSpoolAsStandby does the same while another relayd serves. A standby may wait for
// long, and the events that it answered earlier belong in the database. Claims of an earlier
// run do not conflict with the serving process.
func (s *Store) recoverSpoolAsStandby(ctx context.Context) error {
	if s.spool == nil {
		return nil
	}
	if err := s.spool.loadLeftSegments(s.spoolID); err != nil || !s.spool.active() {
		return err
	}
	return s.drain(ctx, s.spool, func(context.Context) bool { return true })
}
