package store

import (
	"context"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
)

const (
	reconcileInterval = 2 * time.Second
	reconcileAge      = 10 * time.Second // of a claim before it counts as run by nobody
)

var lostEndFault = relay.Fault{
	Code: relay.CodeResponseNotStored, Message: "the outcome could not be stored because the database was away",
}

// SetRunning sets the function that returns the attempts which this process has under way:
// from their claim, or before their event is stored, until their end is stored or has
// failed. Call it before Serve.
func (s *Store) SetRunning(running func() map[relay.AttemptRef]bool) { s.underWay = running }

// dropClaim ends the claim of a step that was not committed, as far as is known. If it was
// committed, the attempt goes back to the queue. That step waits for a transaction of an earlier
// connection that may still claim, and it comes before later claims of the attempt.
func (s *Store) dropClaim(st *step) {
	c := st.claim
	if c == nil {
		return
	}
	c.got = nil
	if c.tried {
		s.Requeue(c.oldest.EventID, c.oldest.N) // a claim that it cannot take back is left to reconcile
	}
}

// reconcile compares the claims of this node with the attempts that it runs, and ends those that it
// claimed before a time and does not run: a step whose outcome could not be stored has left them, or a
// lost answer of the database. It does nothing while steps wait in the spool, which may end them.
func (s *Store) reconcile(ctx context.Context, before time.Time) error {
	if s.underWay == nil || s.spool.Active.Load() || s.committer.whyAway() != nil {
		return nil
	}
	node, former := s.Claimant()
	by := writeTarget{node: node, former: former}
	var claims []events.AttemptRow
	err := s.db.View(ctx, "read claims", func(q db.Query) error {
		return q.AllIn(&claims, `SELECT `+events.AttemptRowColumns+` FROM attempts WHERE state = 1 AND claim_node IN (?)
			AND started_at < ? ORDER BY started_at`, by.claimants(), db.Micros(before))
	})
	if err != nil {
		return err
	}
	running := s.underWay()
	if s.spool.Active.Load() { // the ends of some may have gone there meanwhile
		return nil
	}
	for i := range claims {
		if running[claims[i].Ref()] {
			continue
		}
		err := s.db.Update(ctx, "end an attempt that nobody runs", func(c *db.Tx) error {
			return events.InterruptAll(c, claims[i:i+1], lostEndFault)
		})
		if err != nil {
			return err
		}
		s.meter.reconciled.Add(1)
		s.log.Warn("an attempt that nobody runs is marked interrupted", "event", claims[i].EventID.String(), "attempt", claims[i].N)
	}
	return nil
}
