package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"relay"
	"relay/record"
	"relay/store/db"
	"relay/store/people"
)

// BeginReplay appends a replay attempt; see delivery.Queue.
func (s *Store) BeginReplay(ctx context.Context, who relay.Actor, id relay.ID, deliver bool) (*relay.Claim, error) {
	if err := people.Allow(who, relay.ScopeEventsReplay); err != nil {
		return nil, err
	}
	if err := s.caughtUp(); err != nil {
		return nil, err
	}
	if deliver && s.MayClaim() != nil { // the database was away a moment ago: the replay would be queued
		s.RefreshPeers(ctx)
	}
	var claim relay.Claim
	err := s.db.Update(ctx, "begin replay", func(c *db.Tx) error {
		e, err := findEvent(c.Query, who, id)
		if err != nil {
			return err
		}
		if e.Blocker != "" {
			return notReplayable(&e)
		}
		now, state, started, node := s.db.Clock.Arrival(s.db.Clock.Wall()), queued, time.Time{}, ""
		if deliver {
			state, started, node = delivering, now, s.NodeID()
		}
		n := 0
		if err := c.Get(&n, `UPDATE events SET attempts = attempts + 1, asked_at = ?, state = ?, error_code = '', error_message = ''
			WHERE id = ? AND state < 6 RETURNING attempts`, db.Micros(now), state, id); err != nil {
			return err
		}
		c.Do(`INSERT INTO attempts (`+attemptColumns+`)
			VALUES (?, ?, ?, 1, ?, ?, ?, 0, ?, '', '', 0, 0, '', NULL, NULL, 0, 0, '', ?, ?,
				(SELECT size + COALESCE(LENGTH(head), 0) + COALESCE(LENGTH(lines), 0) FROM payloads WHERE event_id = ? AND n = 0))`,
			id, n, e.AliasID, state, db.Micros(now), db.Micros(started), db.StorableText(who.String()), node, 0, id)
		c.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: e.AliasID, Event: id, N: n})
		if !deliver {
			enqueueAttempt(c, id, n)
			c.Publish(relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID})
		}
		if claim, err = db.RowOf(c.Query, claimFields, claimedSQL, id, id, n); err != nil {
			return err
		}
		return people.AuditOfAlias(c, who, e.AliasID, "replay", id.String(), "attempt "+strconv.Itoa(n))
	})
	if err != nil {
		return nil, err
	}
	return &claim, nil
}

// queueColumns are the columns of queue that have the same name and value in attempts. An
// attempt has a row in queue exactly while it is queued, or is delivered from the queue:
// then claim_node is set. The transaction that changes the state of the attempt changes the
// queue too, after it has locked the event; see lockEvents.
const queueColumns = `event_id, n, alias_id, received_at, kind, released, bytes`

// insertQueue adds queued attempts of new events.
var insertQueue = db.InsertInto("queue", queueColumns, `uuid bigint bigint bigint bigint bigint bigint`)

// enqueueAttempt adds a queued attempt of a locked event to the queue, or ends its claim.
func enqueueAttempt(c *db.Tx, id relay.ID, n int) {
	c.Do(`INSERT INTO queue (`+queueColumns+`) SELECT `+queueColumns+` FROM attempts WHERE event_id = ? AND n = ?
		ON CONFLICT (event_id, n) DO UPDATE SET claim_node = ''`, id, n)
}

// dequeueAttempt removes an attempt of a locked event from the queue.
func dequeueAttempt(c *db.Tx, id relay.ID, n int) {
	c.Do(`DELETE FROM queue WHERE event_id = ? AND n = ?`, id, n)
}

// notReplayable returns the reason why e cannot be sent again.
func notReplayable(e *relay.Event) *relay.Error {
	return &relay.Error{
		Code: relay.CodeEventNotReplayable, Reason: e.Blocker, Detail: "this event cannot be replayed: " + record.BlockerText(e.Blocker),
	}
}

// releaseSlice is how many attempts one transaction of Release changes, so that SQLite's only
// writer is held for a few ms.
const releaseSlice = 1000

// Release permits the automatic delivery of the inbound events that were queued while the
// alias was offline; see delivery.Queue. It releases the oldest first, in several
// transactions: when it fails, some events may have been released.
func (s *Store) Release(ctx context.Context, who relay.Actor, alias string) (released int, err error) {
	if err := people.Allow(who, relay.ScopeEventsReplay); err != nil {
		return 0, err
	}
	until := int64(-1)
	for more := true; more; {
		n := 0
		err := s.db.Update(ctx, "release queued events", func(c *db.Tx) error {
			a, err := people.FindAlias(c.Query, who, alias)
			if err != nil {
				return err
			}
			if until < 0 { // what comes later is not released
				if err := c.Get(&until, `SELECT COALESCE(MAX(received_at), 0) FROM queue WHERE alias_id = ?`, a.ID); err != nil {
					return err
				}
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

// releaseSome releases the oldest inbound events of an alias that arrived until a time, and
// returns how many. It changes only the queue: who reads a queued attempt takes released
// from there, and what ends the waiting copies it to the attempt.
func releaseSome(c *db.Tx, alias, until int64) (int, error) {
	var rows []attemptRow
	if err := c.All(&rows, `UPDATE queue SET released = 1 WHERE (event_id, n) IN (SELECT event_id, n FROM queue
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

// releasedWhileQueued is attempts.released of an attempt that leaves the queue.
const releasedWhileQueued = `COALESCE((SELECT w.released FROM queue w WHERE w.event_id = attempts.event_id AND w.n = attempts.n), released)`

// cancelSlice is how many attempts one transaction of Cancel changes; see releaseSlice.
const cancelSlice = 1000

// Cancel cancels the queued attempts of an event, the oldest first, in several transactions: when
// it fails, some may be canceled. It returns conflict when none is queued.
func (s *Store) Cancel(ctx context.Context, who relay.Actor, id relay.ID) error {
	if err := people.Allow(who, relay.ScopeEventsReplay); err != nil {
		return err
	}
	until := 0 // what is asked for later is not canceled
	for first, more := true, true; more; first = false {
		err := s.db.Update(ctx, "cancel queued attempts", func(c *db.Tx) error {
			if _, err := findEvent(c.Query, who, id); err != nil {
				return err
			}
			if err := lockEvents(c, []relay.ID{id}); err != nil {
				return err
			}
			e, err := findEvent(c.Query, who, id)
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
				return relay.Errorf(relay.CodeConflict, "nothing of this event waits in the queue")
			}
			return people.AuditOfAlias(c, who, e.AliasID, "cancel", id.String(), "")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cancelSome cancels the oldest queued attempts of a locked event up to a number, and returns how
// many.
func cancelSome(c *db.Tx, who relay.Actor, e *relay.Event, until int) (int, error) {
	fault := relay.Fault{Code: relay.CodeCanceled, Message: "canceled by " + db.StorableText(who.String()) + " while it waited"}
	var rows []attemptRow
	if err := c.All(&rows, `UPDATE attempts SET state = 5, ended_at = ?, error_code = ?, error_message = ?, released = `+releasedWhileQueued+`
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
	return len(rows), c.RunOne(endEvent, []any{e.ID, last, canceled, fault.Code, fault.Message, 0, nil, ""}) // what the event says is of the last one
}

// QueuePositions returns the positions of attempts in the queue of their alias, from 1 on.
// Attempts that do not wait are left out. It numbers the whole queue, once.
func (s *Store) QueuePositions(ctx context.Context, alias int64, refs []relay.AttemptRef) (map[relay.AttemptRef]int, error) {
	return db.Read(ctx, s.db, "number the queue", func(q db.Query) (map[relay.AttemptRef]int, error) { return queuePositions(q, alias, refs) })
}

func queuePositions(q db.Query, alias int64, refs []relay.AttemptRef) (map[relay.AttemptRef]int, error) {
	ids := make([]any, len(refs))
	for i := range refs {
		ids[i] = refs[i].Event
	}
	var found []struct {
		EventID  relay.ID `db:"event_id"`
		N        int      `db:"n"`
		Position int      `db:"position"`
	}
	if err := q.AllIn(&found, `SELECT event_id, n, position FROM (SELECT event_id, n, ROW_NUMBER() OVER (ORDER BY received_at, event_id, n) AS position
		FROM queue WHERE alias_id = ? AND claim_node = '') waiting WHERE event_id IN (?)`, alias, ids); err != nil {
		return nil, err
	}
	positions := make(map[relay.AttemptRef]int, len(found))
	for _, f := range found {
		positions[relay.AttemptRef{Event: f.EventID, N: f.N}] = f.Position
	}
	return positions, nil
}

// manyAliases is the number of aliases from which on a statement no longer names each
// of them: SQLite and Postgres bound the parameters of a statement, and planning takes
// longer with each one.
const manyAliases = 64

// QueueStats counts the queued attempts of the aliases given. The result has each alias.
func (s *Store) QueueStats(ctx context.Context, aliases []int64) (map[int64]relay.QueueStats, error) {
	out := make(map[int64]relay.QueueStats, len(aliases))
	if len(aliases) == 0 {
		return out, nil
	}
	for _, id := range aliases {
		out[id] = relay.QueueStats{}
	}
	where, args := `alias_id >= ? AND alias_id <= ?`, []any{slices.Min(aliases), slices.Max(aliases)}
	if len(aliases) <= manyAliases {
		where, args = db.ColumnIn(`alias_id`, aliases)
	}
	all, err := s.queueStats(ctx, where, args...)
	for id, st := range all {
		if _, asked := out[id]; asked {
			out[id] = st
		}
	}
	return out, err
}

// AllQueueStats counts the queued attempts by alias. Aliases with an empty queue are left out.
func (s *Store) AllQueueStats(ctx context.Context) (map[int64]relay.QueueStats, error) {
	return s.queueStats(ctx, `1 = 1`)
}

func (s *Store) queueStats(ctx context.Context, where string, args ...any) (map[int64]relay.QueueStats, error) {
	type row struct {
		relay.QueueStats
		alias int64
	}
	fields := func(r *row) []any {
		return []any{&r.alias, &r.Queued, &r.QueuedEvents, &r.QueuedBytes, (*db.Time)(&r.OldestQueuedAt)}
	}
	rows, err := db.ReadRows(ctx, s.db, "count queues", fields, `SELECT alias_id, COUNT(*), SUM(CASE WHEN kind = 0 AND released = 0 THEN 1 ELSE 0 END),
		CAST(SUM(bytes) AS BIGINT), MIN(received_at) FROM queue WHERE claim_node = '' AND `+where+` GROUP BY alias_id`, args...)
	out := make(map[int64]relay.QueueStats, len(rows))
	for _, r := range rows {
		out[r.alias] = r.QueueStats
	}
	return out, err
}

// lastEventsSlice is how many aliases one statement of LastEvents looks at. On Postgres
// each alias costs one look into an index of every day.
const lastEventsSlice = 1000

// LastEvents returns when the newest event of each alias first arrived. Aliases without
// events are left out.
func (s *Store) LastEvents(ctx context.Context, aliases []int64) (map[int64]time.Time, error) {
	out := make(map[int64]time.Time, len(aliases))
	for some := range slices.Chunk(aliases, lastEventsSlice) {
		in, args := db.ColumnIn(`al.id`, some)
		type row struct {
			alias int64
			at    *int64
		}
		rows, err := db.ReadRows(ctx, s.db, "find newest events", func(r *row) []any { return []any{&r.alias, &r.at} },
			`SELECT al.id, (SELECT e.received_at FROM events e WHERE e.alias_id = al.id ORDER BY e.id DESC LIMIT 1) FROM aliases al WHERE `+in, args...)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r.at != nil {
				out[r.alias] = db.FromMicros(*r.at)
			}
		}
	}
	return out, nil
}
