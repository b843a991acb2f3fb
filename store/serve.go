package store

import (
	"context"
	"fmt"
	"time"

	"relay"
)

// Serve makes this process the one that serves the store: it takes the serve lock
// (SQLite: fails at once when another process has it; Postgres: waits as standby
// until ctx ends), raises the boot number, ends what an earlier boot left under
// way, and starts the committers and the poll for changes by other processes.
//
// publish is told every change after its commit, in commit order, from one
// goroutine; it must not call operations that change the store. Called once, after
// Migrate.
func (s *Store) Serve(ctx context.Context, publish func([]relay.Change)) error {
	if err := s.takeServeLock(ctx); err != nil {
		return err
	}
	if err := s.raiseBoot(ctx); err != nil {
		return err
	}
	s.sign()
	if err := s.checkDurability(ctx); err != nil {
		return err
	}
	if err := s.makePartitions(ctx, s.now()); err != nil {
		return err
	}
	if err := s.adopt(ctx); err != nil {
		return fmt.Errorf("store what waits in the spool: %w", err)
	}
	swept, err := s.sweep(ctx)
	if err != nil {
		return err
	}
	if swept > 0 {
		s.log.Warn("attempts were under way when the relay stopped; they are marked interrupted", "attempts", swept)
	}
	if err := s.raiseIDs(ctx); err != nil {
		return err
	}
	last, err := s.lastRevision(ctx)
	if err != nil {
		return err
	}
	s.out.serve(publish)
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.disk.look(s)
	if err := s.countStock(run); err != nil {
		return err
	}
	if err := s.startCommitters(run); err != nil {
		return err
	}
	if s.mover.db != nil {
		s.wait.Go(func() { s.keepMoving(run) })
	}
	if s.spool != nil {
		s.wait.Go(func() { s.drainLoop(run) })
	}
	if s.d.bulk {
		s.wait.Go(func() { s.keepLock(run) })
	}
	s.wait.Go(func() { s.watch(run, last) })
	jumps := s.leaps() // from here on, whenever the loops get to run
	s.wait.Go(func() { s.tidy(run, jumps) })
	s.wait.Go(func() { s.keepAge(run, jumps) })
	s.wait.Go(func() { s.keepSize(run) })
	s.wait.Go(func() { s.keepClean(run) })
	return nil
}

// raiseBoot numbers this start of this node and notes it as the serving one. A call with
// an Idempotency-Key that has no answer yet ended with the server that ran it: on another
// node that may have had the same number.
func (s *Store) raiseBoot(ctx context.Context) error {
	return s.update(ctx, "raise boot number", func(c *change) error {
		if err := c.get(&s.boot, `INSERT INTO nodes (node, boot) VALUES (?, 1)
			ON CONFLICT (node) DO UPDATE SET boot = nodes.boot + 1 RETURNING boot`, s.node); err != nil {
			return err
		}
		if _, err := c.exec(`DELETE FROM idempotency WHERE status = 0`); err != nil {
			return err
		}
		_, err := c.exec(`INSERT INTO meta (name, value) VALUES ('serving', ?)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, s.servingName())
		return err
	})
}

// watch runs each second: changes of other processes, attempts of servers that are gone,
// results that could not be written.
func (s *Store) watch(ctx context.Context, last int64) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var err error
		if last, err = s.pollRevisions(ctx, last); err != nil && ctx.Err() == nil && !s.spool.deserted() {
			s.log.Warn("changes by other processes cannot be read", "err", err)
		}
		s.disk.look(s)
		s.repair()
		if s.reachable() == nil {
			s.flushUsage(ctx)
			s.flushNotes(ctx)
			s.endAllLate(ctx)
		}
		if s.d.bulk && n%10 == 9 && !s.spool.deserted() && s.holdLock(ctx) {
			s.sweepAgain(ctx)
		}
	}
}

// keepLock asks each second whether the serve lock of Postgres is still held, whatever
// else takes its time: a lock that nobody asks for is given up, see endAlone.
func (s *Store) keepLock(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.holdLock(ctx)
	}
}

// sweepAgain ends what a server that lost the lock still claimed after the sweep
// of Serve.
func (s *Store) sweepAgain(ctx context.Context) {
	n, err := s.sweep(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		s.log.Warn("attempts of servers that are gone cannot be swept", "err", err)
	case n > 0:
		s.log.Warn("attempts of a server that is gone are marked interrupted", "attempts", n)
	}
}

// tidy removes what removed aliases left, at once when one is removed, and each
// hour makes partitions and drops what expired.
func (s *Store) tidy(ctx context.Context, jumps leaps) {
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	for n := 0; ; n++ {
		sure := !jumps.doubtful(s.now())
		if err := s.clear(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("events of removed aliases cannot be deleted yet", "err", err)
		}
		if n%60 == 0 {
			if err := s.hourly(ctx, sure); err != nil && ctx.Err() == nil {
				s.log.Warn("hourly tidying failed", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-minute.C:
		case <-s.clean:
			n--
		}
	}
}

// hourly makes the partitions of the days ahead and, when the clock can be believed,
// drops rows that expired.
func (s *Store) hourly(ctx context.Context, sure bool) error {
	if err := s.makePartitions(ctx, s.now()); err != nil || !sure {
		return err
	}
	return s.dropExpired(ctx, s.now())
}
