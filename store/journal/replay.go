package journal

import (
	"context"
	"strconv"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/people"
)

// BeginReplay adds a replay attempt to an event; see delivery.Queue.
func (j *Journal) BeginReplay(ctx context.Context, who relay.Actor, id relay.ID, deliver bool) (*relay.Claim, error) {
	if err := people.Allow(who, relay.ScopeEventsReplay); err != nil {
		return nil, err
	}
	if err := j.spool.CaughtUp(); err != nil {
		return nil, err
	}
	// After an outage of the database, the node may not claim attempts until it renews its heartbeat.
	// RefreshPeers renews it now, because package delivery would otherwise put the replay into the queue.
	if deliver && j.nodes.MayClaim() != nil {
		j.nodes.RefreshPeers(ctx)
	}
	var claim relay.Claim
	err := j.db.Update(ctx, "begin replay", func(c *db.Tx) error {
		e, err := events.FindEvent(c.Query, who, id)
		if err != nil {
			return err
		}
		if e.Blocker != "" {
			return events.NotReplayable(&e)
		}
		now, state, started, node := j.db.Clock.Arrival(j.db.Clock.Wall()), events.Queued, time.Time{}, ""
		if deliver {
			state, started, node = events.Delivering, now, j.nodes.NodeID()
		}
		n := 0
		if err := c.Get(&n, `UPDATE events SET attempts = attempts + 1, asked_at = ?, state = ?, error_code = '', error_message = ''
			WHERE id = ? AND state NOT IN (6, 7) RETURNING attempts`, db.Micros(now), state, id); err != nil {
			return err
		}
		c.Do(`INSERT INTO attempts (`+events.AttemptColumns+`)
			VALUES (?, ?, ?, 1, ?, ?, ?, 0, ?, '', '', 0, 0, '', NULL, NULL, 0, 0, '', ?, ?,
				(SELECT size + COALESCE(LENGTH(head), 0) + COALESCE(LENGTH(lines), 0) FROM payloads WHERE event_id = ? AND n = 0))`,
			id, n, e.AliasID, state, db.Micros(now), db.Micros(started), db.StorableText(who.String()), node, 0, id)
		if who.Via != "" {
			c.Do(`UPDATE attempts SET via = ? WHERE event_id = ? AND n = ?`, db.StorableText(who.Via), id, n)
		}
		c.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: e.AliasID, Event: id, N: n})
		if !deliver {
			events.EnqueueAttempt(c, id, n)
			c.Publish(relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID})
		}
		if claim, err = db.RowOf(c.Query, events.ClaimFields, events.ClaimedSQL, id, id, n); err != nil {
			return err
		}
		return people.AuditOfAlias(c, who, e.AliasID, "replay", id.String(), "attempt "+strconv.Itoa(n))
	})
	if err != nil {
		return nil, err
	}
	return &claim, nil
}

// releaseSlice is the number of attempts that one transaction of Release changes, so that SQLite's
// only writer is held for a few ms.
const releaseSlice = 1000

// Release permits the automatic delivery of the inbound events that were queued while the alias was
// offline; see delivery.Queue. It releases the oldest first, in several transactions: if it fails,
// some events may have been released.
func (j *Journal) Release(ctx context.Context, who relay.Actor, alias string) (released int, err error) {
	if err := people.Allow(who, relay.ScopeEventsReplay); err != nil {
		return 0, err
	}
	until := int64(-1)
	for more := true; more; {
		n := 0
		err := j.db.Update(ctx, "release queued events", func(c *db.Tx) error {
			a, err := people.FindAlias(c.Query, who, alias)
			if err != nil {
				return err
			}
			if until < 0 { // the first transaction sets until; events that are queued later are not released
				if err := c.Get(&until, `SELECT COALESCE(MAX(received_at), 0) FROM queue WHERE alias_id = ?`, a.ID); err != nil {
					return err
				}
				keepReleased(c, a.ID, until)
			}
			if n, err = releaseSome(c, a.ID, until); err != nil {
				return err
			}
			if n == releaseSlice || released+n == 0 {
				return nil
			}
			return people.Audit(c, who, a.Owner, "replay-queued", a.Name, strconv.Itoa(released+n)+" events")
		})
		if err != nil {
			return released, err
		}
		released, more = released+n, n == releaseSlice
	}
	return released, nil
}

// keepReleased marks events as released by a user that were released because the tunnel was at another node. If that
// node is dead, they would be withheld; see withholdSince in package cluster. This concerns only the newest events.
func keepReleased(c *db.Tx, alias, until int64) {
	c.Do(`UPDATE queue SET by_user = 1 WHERE alias_id = ? AND received_at > ? AND received_at <= ? AND claim_node = '' AND kind = 0 AND released = 1 AND by_user = 0`,
		alias, until-time.Minute.Microseconds(), until)
}

// releaseSome releases the oldest inbound events of an alias that arrived up to a time, and returns
// their number. It changes only the table queue. While an attempt is queued, the store reads the column
// released from queue; when the attempt leaves the queue, the value is copied to the attempt.
func releaseSome(c *db.Tx, alias, until int64) (int, error) {
	var rows []events.AttemptRow
	if err := c.All(&rows, `UPDATE queue SET released = 1, by_user = 1 WHERE (event_id, n) IN (SELECT event_id, n FROM queue
			WHERE alias_id = ? AND received_at <= ? AND claim_node = '' AND kind = 0 AND released = 0
			ORDER BY received_at, event_id, n LIMIT ?) AND claim_node = '' AND released = 0
		RETURNING event_id, n`, alias, until, releaseSlice); err != nil || len(rows) == 0 {
		return 0, err
	}
	c.Publish(relay.Change{Kind: relay.ChangeQueue, Alias: alias})
	for _, r := range rows {
		c.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: alias, Event: r.EventID, N: r.N})
	}
	return len(rows), nil
}

// cancelSlice is the number of attempts that one transaction of Cancel changes; see releaseSlice.
const cancelSlice = 1000

// Cancel cancels the queued attempts of an event, the oldest first, in several transactions. If it
// fails, some attempts may already be canceled. The error is conflict if no attempt is queued.
func (j *Journal) Cancel(ctx context.Context, who relay.Actor, id relay.ID) error {
	if err := people.Allow(who, relay.ScopeEventsReplay); err != nil {
		return err
	}
	until := 0 // highest attempt number in the first transaction; later attempts are not canceled
	for first, more := true, true; more; first = false {
		err := j.db.Update(ctx, "cancel queued attempts", func(c *db.Tx) error {
			if _, err := events.FindEvent(c.Query, who, id); err != nil {
				return err
			}
			if err := events.LockEvents(c, []relay.ID{id}); err != nil {
				return err
			}
			e, err := events.FindEvent(c.Query, who, id)
			if err != nil {
				return err
			}
			if first {
				until = e.AttemptCount
			}
			n, err := cancelSome(c, who, &e, until)
			switch more = n == cancelSlice; {
			case err != nil || !first:
				return err
			case n == 0:
				return relay.Errorf(relay.CodeConflict, "this event has no queued attempt")
			}
			return people.AuditOfAlias(c, who, e.AliasID, "cancel", id.String(), "")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cancelSome cancels the oldest queued attempts of a locked event, whose attempt numbers are at most until, and
// returns how many it has canceled.
func cancelSome(c *db.Tx, who relay.Actor, e *relay.Event, until int) (int, error) {
	fault := relay.Fault{Code: relay.CodeCanceled, Message: "canceled by " + db.StorableText(who.String()) + " while it waited"}
	var rows []events.AttemptRow
	if err := c.All(&rows, `UPDATE attempts SET state = 5, ended_at = ?, error_code = ?, error_message = ?, released = `+events.ReleasedWhileQueued+`
		WHERE event_id = ? AND state = 0 AND n IN (SELECT n FROM attempts WHERE event_id = ? AND state = 0 AND n <= ? ORDER BY n LIMIT ?)
		RETURNING event_id, n`, db.Micros(c.Now()), fault.Code, fault.Message, e.ID, e.ID, until, cancelSlice); err != nil || len(rows) == 0 {
		return 0, err
	}
	last := 0
	for _, r := range rows {
		last = max(last, r.N)
		c.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: e.AliasID, Event: e.ID, N: r.N})
	}
	c.Publish(relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID})
	c.Do(`DELETE FROM queue WHERE event_id = ? AND n <= ?
		AND EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = queue.event_id AND a.n = queue.n AND a.state = 5)`, e.ID, last)
	return len(rows), c.RunOne(events.EndEvent, []any{e.ID, last, events.Canceled, fault.Code, fault.Message, 0, nil, ""}) // the row of an event repeats the end of its last attempt
}
