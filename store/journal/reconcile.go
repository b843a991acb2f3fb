package journal

import (
	"context"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
)

var lostEndFault = relay.Fault{
	Code: relay.CodeResponseNotStored, Message: "the outcome could not be stored because the database was away",
}

// SetRunning sets the function that returns the attempts which this process has in progress. An attempt is in
// progress from its claim on; the attempt of a new event, which needs no claim, already before the event is
// stored. It stays in progress until its end was stored or could not be stored. Call SetRunning before Serve.
func (j *Journal) SetRunning(running func() map[relay.AttemptRef]bool) { j.underWay = running }

// Reconcile ends the attempts that this node claimed before the given time, but that are not in progress (see
// SetRunning). Such attempts exist if their end could not be stored, or if the answer of the database to a
// claim was lost. Reconcile does nothing while steps wait in the spool, because these may end the attempts.
func (j *Journal) Reconcile(ctx context.Context, before time.Time) error {
	if j.underWay == nil || j.spool.Active.Load() || j.WhyAway() != nil {
		return nil
	}
	node, former := j.nodes.Claimant()
	by := writeTarget{node: node, former: former}
	var claims []events.AttemptRow
	err := j.db.View(ctx, "read claims", func(q db.Query) error {
		return q.AllIn(&claims, `SELECT `+events.AttemptRowColumns+` FROM attempts WHERE state = 1 AND claim_node IN (?)
			AND started_at < ? ORDER BY started_at`, by.claimants(), db.Micros(before))
	})
	if err != nil {
		return err
	}
	running := j.underWay()
	if j.spool.Active.Load() { // the ends of some claimed attempts may be in the spool
		return nil
	}
	for i := range claims {
		if running[claims[i].Ref()] {
			continue
		}
		err := j.db.Update(ctx, "end an attempt that nobody runs", func(c *db.Tx) error {
			return events.InterruptAll(c, claims[i:i+1], lostEndFault)
		})
		if err != nil {
			return err
		}
		j.meter.Reconciled.Add(1)
		j.log.Warn("an attempt whose process is gone is marked interrupted", "event", claims[i].EventID.String(), "attempt", claims[i].N)
	}
	return nil
}
