package store

import (
	"cmp"
	"context"
	"sync"
	"time"

	"relay/store/cluster"
	"relay/store/db"
	"relay/store/partition"
	"relay/store/retention"
)

// loop is work that the store repeats while it serves. It says which node does the work, how often, and under
// which conditions. The function loops lists all loops.
type loop struct {
	name  string
	who   runner
	every time.Duration   // time between two rounds; 0 = only when woken
	again time.Duration   // wait before a round that failed or was not possible is tried again; 0 = as long as the field every
	soon  bool            // the first round starts at once
	wake  <-chan struct{} // starts a round at this node, whichever node holds the lease; nil = never
	when  condition
	round func(ctx context.Context, now time.Time) error // now is the time that was checked for sureClock
	run   func(context.Context)                          // used instead of round by loops that have their own schedule
}

// runner names the nodes that do the work of a loop: every node, or the holder of the lease with this
// name. SQLite has one node, which does everything.
type runner string

const everyNode runner = ""

// condition is a condition under which the work of a loop may be done.
type condition int

const (
	withDatabase condition = 1 << iota // the database answers
	sureClock                          // the clock has not jumped ahead; see clockJumps
	noSpool                            // no steps wait in the spool of any node that lives
)

const (
	retentionInterval = time.Second
	evictionInterval  = time.Second
	leaseSweep        = 10 * time.Second
	tidyInterval      = time.Hour
	tidyAgain         = time.Minute

	reconcileInterval = 2 * time.Second
	reconcileAge      = 10 * time.Second // minimum age of a claim that Reconcile ends because no process runs it
)

// loops lists all loops. The parameter last marks the newest revision that was stored before the start.
func (s *Store) loops(last cluster.RevisionMark) []loop {
	list := []loop{
		{name: "changes by others", who: everyNode, every: time.Second, wake: s.RevisionsWritten(), round: func(ctx context.Context, _ time.Time) error {
			last = s.PollRevisions(ctx, last)
			if !s.db.Dialect.SeveralNodes() {
				s.RoundDone()
			}
			return nil
		}},
		{name: "free space of the disk", who: everyNode, every: time.Second, round: func(context.Context, time.Time) error { s.db.Disk.Refresh(); return nil }},
		{name: "results written late", who: everyNode, every: time.Second, when: withDatabase, round: timeless(s.writeBehind)},
		{name: "claims that nobody runs", who: everyNode, every: reconcileInterval, when: withDatabase, round: func(ctx context.Context, now time.Time) error {
			return s.Reconcile(ctx, now.Add(-reconcileAge))
		}},
		{name: "events that are too old", who: cluster.LeaseRetention, every: retentionInterval, when: withDatabase | sureClock, round: func(ctx context.Context, now time.Time) error {
			_, err := s.eventRetention.Retain(ctx, now, false)
			return err
		}},
		{name: "events of removed aliases", who: cluster.LeaseTidy, every: tidyAgain, soon: true, wake: s.RemovedAliases(), when: withDatabase, round: timeless(s.DeleteRemovedAliases)},
		{name: "partitions of the days to come", who: cluster.LeaseTidy, every: tidyInterval, again: tidyAgain, soon: true, when: withDatabase, round: func(ctx context.Context, now time.Time) error {
			return partition.Make(ctx, s.db, s.log, now)
		}},
		{name: "rows that have expired", who: cluster.LeaseTidy, every: tidyInterval, again: tidyAgain, soon: true, when: withDatabase | sureClock, round: func(ctx context.Context, now time.Time) error {
			return cmp.Or(s.DropExpired(ctx, now), s.db.Update(ctx, "note the time", func(c *db.Tx) error { cluster.NoteSeen(c); return nil }))
		}},
		{name: "bodies without an event", who: cluster.LeaseTidy, every: retention.SweepInterval, again: tidyAgain, soon: true, when: withDatabase | sureClock | noSpool, round: func(ctx context.Context, now time.Time) error {
			_, err := s.SweepOrphans(ctx, now)
			return err
		}},
	}
	if s.opt.MaxAliasStorage > 0 { // a node without a limit must not hold the lease, because it evicts nothing
		list = append(list, loop{name: "events beyond the storage of an alias", who: cluster.LeaseEviction, every: evictionInterval, when: withDatabase, round: func(ctx context.Context, _ time.Time) error {
			return s.EvictOverLimit(ctx, false)
		}})
	}
	if s.opt.AccountLimits {
		list = append(list,
			loop{name: "owners and limits of accounts", who: everyNode, every: time.Second, when: withDatabase, round: timeless(s.usage.ReadLimits)},
			loop{name: "events beyond the storage of an account", who: cluster.LeaseAccounts, every: evictionInterval, when: withDatabase, round: func(ctx context.Context, _ time.Time) error {
				return s.EvictOverLimit(ctx, true)
			}})
	}
	if s.db.HasLog() {
		list = append(list, loop{name: "log of SQLite", who: everyNode, run: s.db.CheckpointLoop})
	}
	if s.spool.Enabled() {
		list = append(list, loop{name: "spool of this node", who: everyNode, run: s.DrainLoop})
	}
	if s.db.Dialect.SeveralNodes() {
		list = append(list,
			loop{name: "dead nodes", who: everyNode, run: s.SweepLoop},
			// A sweep may miss a claim that the swept node makes at the same moment. The loop "claims of
			// dead nodes" ends such claims.
			loop{name: "claims of dead nodes", who: cluster.LeaseClaims, every: leaseSweep, when: withDatabase, round: timeless(s.sweepLeft)})
	}
	return list
}

// startLoops runs the loops until ctx ends.
func (s *Store) startLoops(ctx context.Context, last cluster.RevisionMark) {
	for _, l := range s.loops(last) {
		if l.run != nil {
			s.wait.Go(func() { l.run(ctx) })
		} else {
			s.wait.Go(func() { s.runLoop(ctx, &l) })
		}
	}
}

func (s *Store) runLoop(ctx context.Context, l *loop) {
	first := l.every
	if l.soon {
		first = 0
	}
	timer := time.NewTimer(first)
	defer timer.Stop()
	failing := false
	for {
		woken := false
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			woken = true
		case <-timer.C:
		}
		done, err := s.runRound(ctx, l, woken)
		if err != nil && ctx.Err() == nil && !failing && !s.spool.Away.Load() {
			s.log.Warn("a background task of the store failed; it is tried again", "work", l.name, "err", err)
		}
		failing = err != nil
		switch {
		case woken:
		case done || l.again == 0:
			timer.Reset(l.every)
		default:
			timer.Reset(l.again)
		}
	}
}

// runRound does the work of a loop once, if this node has to do it now. If woken is true, the node
// does the work even without the lease. done is false if the work was not done, or failed.
func (s *Store) runRound(ctx context.Context, l *loop, woken bool) (done bool, err error) {
	now, jumped := s.jumps.check(s.db.Now) // also for loops that ignore jumps, so that each jump is detected
	switch {
	case l.when&withDatabase != 0 && s.db.Away() != nil,
		l.when&sureClock != 0 && jumped,
		l.who != everyNode && !woken && !s.HoldsLease(ctx, string(l.who)):
		return false, nil
	case l.when&noSpool != 0:
		if !s.SteadyFor(spoolTold) {
			return false, nil
		}
		if waits, err := s.SpoolWaits(ctx); err != nil || waits {
			return false, err
		}
	}
	err = l.round(ctx, now)
	return err == nil, err
}

// timeless makes a round of a function that needs no time.
func timeless(do func(context.Context) error) func(context.Context, time.Time) error {
	return func(ctx context.Context, _ time.Time) error { return do(ctx) }
}

// writeBehind writes changes that could not be written before, and changes that may be written late. It also
// tells the other nodes how many bytes this node has stored.
func (s *Store) writeBehind(ctx context.Context) error {
	s.WriteLate(ctx)
	s.usage.Tell(ctx)
	return nil
}

// sweepLeft ends the claims of ended nodes.
func (s *Store) sweepLeft(ctx context.Context) error {
	n, err := s.Sweep(ctx)
	if err == nil && n > 0 {
		s.log.Warn("attempts of a dead node are marked interrupted", "attempts", n)
	}
	return err
}

// jumpWatch lets several loops share one clockJumps.
type jumpWatch struct {
	mu sync.Mutex
	clockJumps
}

// check reads the clock, and reports whether what it reads is doubted; see recentJump. What expires is judged by the
// returned time, because the clock may jump after the check.
func (w *jumpWatch) check(now func() time.Time) (wall time.Time, doubted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wall = now()
	return wall, w.recentJump(wall)
}

// spoolTold is the time for which a node must have seen the heartbeats of all others before it relies
// on their reports about their spools. After an outage of the database the nodes come back one after
// another, and a node that has not reported yet may have steps in its spool.
const spoolTold = 10 * time.Second
