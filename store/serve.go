package store

import (
	"context"
	"fmt"
	"time"

	"relay"
)

// Serve makes this process a node of the store. It takes the lock of the data dir (it fails
// at once when another process has that), joins the other nodes, ends the attempts that
// belong to no living node, and starts the committer, the beat and the other loops.
//
// publish gets every change after its commit, in commit order, from one goroutine; it must
// not call operations that change the store. Call Serve once, after Migrate.
func (s *Store) Serve(ctx context.Context, publish func([]relay.Change)) (err error) {
	if err := s.Claim(); err != nil {
		return err
	}
	before := s.predecessor()
	if err := s.join(ctx, before); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if s.d.isPostgres { // what follows may take longer than the others wait for a beat
		s.wait.Go(func() { s.nodeLoop(run) })
	}
	if f := s.examineDurability(session{ctx, s.write, &s.d, &s.clock}); f.Verdict != relay.VerdictOK {
		s.log.Warn("the database may not make commits durable", "reason", f.Reason, "fix", f.Fix)
	}
	if err := s.makePartitions(ctx, s.now()); err != nil {
		s.log.Warn(partitionsLate, "err", err)
	}
	if err := s.recoverSpool(ctx); err != nil {
		return fmt.Errorf("store what waits in the spool: %w", err)
	}
	if err := s.endDeadNodes(ctx, before); err != nil {
		return err
	}
	if err := s.raiseIDs(ctx); err != nil {
		return err
	}
	last, err := s.lastRevision(ctx)
	if err != nil {
		return err
	}
	s.outbox.serve(publish)
	s.stop = stop
	s.disk.refresh(s)
	if err := s.countStorage(run); err != nil {
		return err
	}
	if err := s.startCommitter(run); err != nil {
		return err
	}
	if s.checkpointer.db != nil {
		s.wait.Go(func() { s.checkpointLoop(run) })
	}
	if s.spool.Enabled() {
		s.wait.Go(func() { s.drainLoop(run) })
	}
	if s.d.isPostgres {
		s.wait.Go(func() { s.sweepLoop(run) })
	}
	if err := s.startNotices(run); err != nil {
		return err
	}
	s.wait.Go(func() { s.pollLoop(run, last) })
	var jumps clockJumps
	jumps.recentJump(s.now()) // watches from now on, also while the loops have not run yet
	s.wait.Go(func() { s.tidyLoop(run, jumps) })
	s.wait.Go(func() { s.retentionLoop(run, jumps) })
	s.wait.Go(func() { s.evictionLoop(run) })
	s.wait.Go(func() { s.reconcileLoop(run) })
	return nil
}

// whileLocked does a step of the start again while another session keeps a lock that the step
// needs. A node that lost its connection leaves its transaction and the locks of that behind,
// until Postgres ends the session: see sessionSettings.
func whileLocked(ctx context.Context, step func() error) error {
	return tryAgain(ctx, 3*opTimeout, isLocked, step)
}

// tryAgain does a step of the start again, for up to limit, while mayPass says of its error that
// it may pass: no caller waits at this time. It returns the last error of the step.
func tryAgain(ctx context.Context, limit time.Duration, mayPass func(error) bool, step func() error) error {
	for began := time.Now(); ; {
		err := step()
		if !mayPass(err) || time.Since(began) > limit || pause(ctx, retryPause) != nil {
			return err
		}
	}
}

// pause waits for a time, or until ctx ends, and returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}

// pollLoop does what is due each second: it reads changes by other processes, ends attempts
// of dead servers, and writes results that could not be written before. It reads changes at
// once when another node announces them.
func (s *Store) pollLoop(ctx context.Context, last revisionMark) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-s.notices.poll:
			last = s.pollRevisions(ctx, last)
			continue
		case <-tick.C:
		}
		last = s.pollRevisions(ctx, last)
		s.disk.refresh(s)
		if s.reachable() == nil {
			s.flushWriteBehind(ctx)
			s.flushRefused(ctx)
			s.tellStorage(ctx)
			_ = s.endLateCalls(ctx) // tried again in a second
		}
		if s.d.isPostgres && n%10 == 9 && s.reachable() == nil && s.holdsLease(ctx, leaseClaims) {
			// A node may claim in the moment in which it is swept.
			n, err := s.sweep(ctx)
			if err != nil && ctx.Err() == nil {
				s.log.Warn("attempts of dead nodes cannot be swept", "err", err)
			} else if n > 0 {
				s.log.Warn("attempts of a dead node are marked interrupted", "attempts", n)
			}
		}
		if !s.d.isPostgres {
			s.rounds.Add(1)
		}
		n++
	}
}

const partitionsLate = "partitions of the days to come cannot be made yet; the default partition takes their rows until they are"

// tidyLoop deletes the events of removed aliases, at once when an alias is removed here. Each
// hour it makes partitions and, if the clock can be trusted, deletes expired rows, and once a
// day orphaned bodies. The lock that keeps partitions from being made may be given back soon:
// relayd tries again each minute.
func (s *Store) tidyLoop(ctx context.Context, jumps clockJumps) {
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	try := func(failure string, err error) bool {
		if err != nil && ctx.Err() == nil {
			s.log.Warn(failure, "err", err)
		}
		return err == nil
	}
	made, woken := false, false
	var swept time.Time
	for n := 0; ; n++ {
		sure := !jumps.recentJump(s.now())
		holder := s.holdsLease(ctx, leaseTidy)
		if holder || woken {
			try("events of removed aliases cannot be deleted yet", s.deleteRemovedAliases(ctx))
		}
		hour := n%60 == 0
		if holder && (hour || !made) {
			err := s.makePartitions(ctx, s.now())
			if made = err == nil; hour {
				try(partitionsLate, err)
			}
		}
		if holder && hour && sure {
			try("hourly tidying failed", s.dropExpired(ctx, s.now()))
			if swept.IsZero() || time.Since(swept) >= sweepInterval {
				_, err := s.SweepOrphans(ctx, s.now())
				if try("orphaned bodies cannot be removed now", err) {
					swept = time.Now()
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-minute.C:
			woken = false
		case <-s.wakeCleaner:
			n--
			woken = true
		}
	}
}
