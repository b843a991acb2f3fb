package store

import (
	"context"
	"fmt"

	"relay"
	"relay/store/cluster"
	"relay/store/db"
	"relay/store/partition"
)

// Serve makes this process a node of the store. It takes the lock of the data dir, or fails at once if
// another process has the lock. Serve then joins the other nodes, ends the attempts of nodes that no
// longer live, and starts the committer, the heartbeat and the other loops.
//
// publish gets every change after its commit, in commit order, from one goroutine; it must not call
// operations that change the store. Call Serve once, after Migrate.
func (s *Store) Serve(ctx context.Context, publish func([]relay.Change)) (err error) {
	if err := s.LockDataDir(); err != nil {
		return err
	}
	before := s.Predecessor()
	if err := s.Join(ctx, before); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if s.db.Dialect.SeveralNodes() { // the heartbeat begins now, because the next steps may take so long that other nodes declare this one dead
		s.wait.Go(func() { s.NodeLoop(run) })
	}
	if f := s.db.ExamineDurability(s.db.Session(ctx, s.db.Write)); f.Verdict != relay.VerdictOK {
		s.log.Warn("the database may not make commits durable", "reason", f.Reason, "fix", f.Fix)
	}
	if err := partition.Make(ctx, s.db, s.log, s.db.Now()); err != nil {
		s.log.Warn(partitionsLate, "err", err)
	}
	if err := s.RecoverSpool(ctx); err != nil {
		return fmt.Errorf("store the spool: %w", err)
	}
	if err := s.EndDeadNodes(ctx, before); err != nil {
		return err
	}
	if err := db.WhileBusy(ctx, func() error { return s.RaiseIDs(ctx) }); err != nil {
		return err
	}
	var last cluster.RevisionMark
	if err := db.WhileBusy(ctx, func() (err error) { last, err = s.LastRevision(ctx); return err }); err != nil {
		return err
	}
	s.SetFeed(publish)
	s.stop = stop
	s.db.Disk.Refresh()
	if err := db.WhileBusy(ctx, func() error { return s.usage.Start(run) }); err != nil {
		return err
	}
	if err := s.StartJournal(run); err != nil {
		return err
	}
	if err := db.WhileBusy(ctx, func() error { return s.StartNotices(run) }); err != nil {
		return err
	}
	if err := db.WhileBusy(ctx, func() error { return s.judgeClock(ctx) }); err != nil {
		return err
	}
	s.startLoops(run, last)
	return nil
}

const partitionsLate = "partitions of the days to come cannot be made yet; the default partition takes their rows until they are"
