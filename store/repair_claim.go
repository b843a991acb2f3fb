package store

import (
	"context"

	"relay"
)

// lostClaim is a claim whose commit was not answered. If the commit succeeded, the attempt is
// delivering and nobody delivers it, so the claim is undone before anything else is claimed.
// The time of the claim distinguishes it from a later claim of the same attempt.
type lostClaim struct {
	id      relay.ID
	n       int
	started int64
	queue   bool // taken from the queue; else a replay that was just begun
}

var lostReplayFault = relay.Fault{
	Code: relay.StateInterrupted, Message: "the database went away while this replay was begun; nothing of it was sent",
}

// noteClaim remembers a claim that failed for err, unless it cannot have been made.
func (s *Store) noteClaim(c lostClaim, err error) {
	if err == nil || c.started == 0 || relay.AsError(err).Code != relay.CodeStoreUnavailable {
		return
	}
	r := &s.repairs
	r.mu.Lock()
	space := len(r.claims) < maxRepairs
	if space {
		r.claims = append(r.claims, c)
	}
	r.mu.Unlock()
	if !space {
		s.noteDroppedRepair(c.id)
	}
}

// firstClaim returns the oldest claim whose outcome is unknown. With undone it first removes
// the current oldest one, which was undone.
func (r *repairs) firstClaim(undone bool) (c lostClaim, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if undone {
		r.claims = r.claims[1:]
	}
	if len(r.claims) == 0 {
		return c, false
	}
	return r.claims[0], true
}

// undoClaims undoes the claims whose outcome is unknown.
func (s *Store) undoClaims(ctx context.Context) error {
	r := &s.repairs
	if _, some := r.firstClaim(false); !some {
		return nil
	}
	if !r.claimMu.TryLock() {
		return errCatchingUp
	}
	defer r.claimMu.Unlock()
	for c, some := r.firstClaim(false); some; c, some = r.firstClaim(true) {
		if err := s.undoClaim(ctx, c); err != nil {
			return err
		}
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

// repairClaims undoes claims once the database is back, also when nothing else is claimed.
func (s *Store) repairClaims() {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	_ = s.undoClaims(ctx) // tried again in a second
}
