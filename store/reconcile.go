package store

import (
	"context"
	"sync"
	"time"

	"relay"
)

const (
	reconcileInterval = 2 * time.Second
	reconcileAge      = 10 * time.Second // of a claim before it counts as run by nobody
	maxLostClaims     = 10_000
)

// reconciler compares the claims of this node with the attempts that it runs. A claim that
// nobody runs was left by a step whose outcome could not be stored, or by an answer of the
// database that was lost.
type reconciler struct {
	running func() map[relay.AttemptRef]bool // attempts under way; nil = not known
	clean   int64                            // steps that were committed or had failed when nothing was left to do

	mu   sync.Mutex
	lost []lostClaim
}

// lostClaim is a claim whose commit was not answered. If the commit succeeded, the attempt is
// delivering and nobody delivers it. The time of the claim distinguishes it from a later
// claim of the same attempt.
type lostClaim struct {
	id      relay.ID
	n       int
	started int64
	queue   bool // taken from the queue; else a replay that was just begun
}

var lostReplayFault = relay.Fault{
	Code: relay.StateInterrupted, Message: "the database went away while this replay was begun; nothing of it was sent",
}

var lostEndFault = relay.Fault{
	Code: relay.CodeResponseNotStored, Message: "the outcome could not be stored because the database was away",
}

// SetRunning sets the function that returns the attempts which this process has under way:
// from their claim, or before their event is stored, until their end is stored or has
// failed. Call it before Serve.
func (s *Store) SetRunning(running func() map[relay.AttemptRef]bool) { s.reconciler.running = running }

// noteClaim remembers a claim that failed for err, unless it cannot have been made. Beyond
// maxLostClaims it is left to its age.
func (s *Store) noteClaim(c lostClaim, err error) {
	if err == nil || c.started == 0 || relay.AsError(err).Code != relay.CodeStoreUnavailable {
		return
	}
	r := &s.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lost) < maxLostClaims {
		r.lost = append(r.lost, c)
	}
}

// dropClaim ends the claim of a step that was not committed, as far as is known.
func (s *Store) dropClaim(st *step) {
	c := st.claim
	if c == nil {
		return
	}
	c.got = relay.AttemptRef{}
	if c.tried {
		s.noteClaim(lostClaim{id: c.oldest.EventID, n: c.oldest.N, started: c.started, queue: true}, errCatchingUp)
	}
}

// reconcileLoop reconciles until ctx ends.
func (s *Store) reconcileLoop(ctx context.Context) {
	tick := time.NewTicker(reconcileInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.reconcile(ctx, s.now().Add(-reconcileAge)); err != nil && ctx.Err() == nil && s.reachable() == nil {
			s.log.Warn("claims cannot be compared with what runs; tried again in two seconds", "err", err)
		}
	}
}

// reconcile undoes the claims whose commit was not answered, and ends the attempts that this
// node claimed before a time and that nobody runs. It does nothing while steps wait in the
// spool, which may be their ends.
func (s *Store) reconcile(ctx context.Context, before time.Time) error {
	if s.spool.active() || s.committer.down() != nil {
		return nil
	}
	r := &s.reconciler
	r.mu.Lock()
	lost := r.lost
	r.lost = nil
	r.mu.Unlock()
	for i, c := range lost {
		if err := s.undoClaim(ctx, c); err != nil {
			r.mu.Lock()
			r.lost = append(r.lost, lost[i:]...)
			r.mu.Unlock()
			return err
		}
	}
	steps := s.committed.Load() + s.meter.failed.Load()
	if r.running == nil || steps == r.clean {
		return nil
	}
	node, former := s.claimant()
	var claims []attemptRow
	err := s.view(ctx, "read claims", func(q session) error {
		return q.all(&claims, `SELECT `+attemptColumns+` FROM attempts WHERE state = 1 AND claim_node IN (?, ?)
			ORDER BY started_at LIMIT 1000`, node, former)
	})
	if err != nil {
		return err
	}
	running := r.running()
	if s.spool.active() { // the ends of some may have gone there meanwhile
		return nil
	}
	if len(claims) == 0 && len(running) == 0 {
		r.clean = steps
	}
	for i := range claims {
		if claims[i].StartedAt >= micros(before) || running[claims[i].ref()] {
			continue
		}
		err := s.update(ctx, "end an attempt that nobody runs", func(c *writeTx) error {
			if err := c.lockEvents([]relay.ID{claims[i].EventID}); err != nil {
				return err
			}
			return c.interrupt(&claims[i], lostEndFault)
		})
		if err != nil {
			return err
		}
		s.meter.reconciled.Add(1)
		s.log.Warn("an attempt that nobody runs is marked interrupted", "event", claims[i].EventID.String(), "attempt", claims[i].N)
	}
	return nil
}

// undoClaim locks the rows, which waits for a transaction of an earlier connection that may
// still change them, and then undoes the claim if it was committed.
func (s *Store) undoClaim(ctx context.Context, lost lostClaim) error {
	id := lost.id
	return s.update(ctx, "take back a claim", func(c *writeTx) error {
		if err := c.lockEvents([]relay.ID{id}); err != nil {
			return err
		}
		var locked []int
		if err := c.all(&locked, `SELECT 1 FROM attempts WHERE event_id = ? AND n = ?`+c.d.forUpdate, id, lost.n); err != nil {
			return err
		}
		var rows []attemptRow
		if err := c.all(&rows, `SELECT `+attemptColumns+` FROM attempts WHERE event_id = ? AND n = ? AND state = 1
			AND claim_node = ? AND started_at = ?`, id, lost.n, s.NodeID(), lost.started); err != nil || len(rows) == 0 {
			return err
		}
		if !lost.queue {
			return c.interrupt(&rows[0], lostReplayFault)
		}
		if _, err := c.exec(`UPDATE attempts SET state = 0, started_at = 0, claim_node = ''
			WHERE event_id = ? AND n = ?`, id, lost.n); err != nil {
			return err
		}
		if err := c.enqueueAttempt(id, lost.n); err != nil {
			return err
		}
		c.publish(relay.Change{Kind: relay.ChangeAttempt, Alias: rows[0].AliasID, Event: id, N: lost.n},
			relay.Change{Kind: relay.ChangeQueue, Alias: rows[0].AliasID})
		if _, err := c.exec(`UPDATE events SET state = 0 WHERE id = ? AND attempts = ? AND state < 6`, id, lost.n); err != nil {
			return err
		}
		return c.supersedeLate(id, lost.n, rows[0].AliasID)
	})
}
