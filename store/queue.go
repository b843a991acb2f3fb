package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jmoiron/sqlx"

	"relay"
	"relay/record"
)

// BeginReplay appends a replay attempt; see delivery.Queue.
func (s *Store) BeginReplay(ctx context.Context, who relay.Actor, id relay.ID, deliver bool) (*relay.Claim, error) {
	if err := allow(who, relay.ScopeEventsReplay); err != nil {
		return nil, err
	}
	if err := s.caughtUp(); err != nil {
		return nil, err
	}
	var claim relay.Claim
	var made lostClaim
	err := s.update(ctx, "begin replay", func(c *writeTx) error {
		e, err := c.event(who, id)
		if err != nil {
			return err
		}
		if e.Blocker != "" {
			return notReplayable(&e)
		}
		now, state, started, node := s.clock.arrival(s.now()), queued, time.Time{}, ""
		if deliver {
			state, started, node = delivering, now, s.NodeID()
		}
		n := 0
		made = lostClaim{}
		if err := c.get(&n, `UPDATE events SET attempts = attempts + 1, asked_at = ?, state = ?, error_code = '', error_message = ''
			WHERE id = ? AND state < 6 RETURNING attempts`, micros(now), state, id); err != nil {
			return err
		}
		made = lostClaim{id: id, n: n, started: micros(started)}
		if _, err := c.exec(`INSERT INTO attempts (`+attemptColumns+`)
			VALUES (?, ?, ?, 1, ?, ?, ?, 0, ?, '', '', 0, 0, '', NULL, NULL, 0, 0, '', ?, ?,
				(SELECT size + COALESCE(LENGTH(head), 0) + COALESCE(LENGTH(lines), 0) FROM payloads WHERE event_id = ? AND n = 0))`,
			id, n, e.AliasID, state, micros(now), micros(started), storableText(who.String()), node, 0, id); err != nil {
			return err
		}
		c.publish(relay.Change{Kind: relay.ChangeAttempt, Alias: e.AliasID, Event: id, N: n})
		if !deliver {
			c.publish(relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID})
		}
		if claim, err = c.claim(id, n); err != nil {
			return err
		}
		return c.auditOfAlias(who, e.AliasID, "replay", id.String(), "attempt "+strconv.Itoa(n))
	})
	if err != nil {
		s.noteClaim(made, err)
		return nil, err
	}
	return &claim, nil
}

// notReplayable returns the reason why e cannot be sent again.
func notReplayable(e *relay.Event) *relay.Error {
	return &relay.Error{
		Code: relay.CodeEventNotReplayable, Reason: e.Blocker, Detail: "this event cannot be replayed: " + record.BlockerText(e.Blocker),
	}
}

// claim reads the event of an attempt that will be delivered: the request without the parts
// of a large body, and the attempts without their bytes.
func (q session) claim(id relay.ID, n int) (relay.Claim, error) {
	e, err := q.event(relay.System(), id)
	if err != nil {
		return relay.Claim{}, err
	}
	var p payloadRow
	if err := q.get(&p, `SELECT n, head, lines, framing, body, parts, stored, size, sha256, state, extra, interim
		FROM payloads WHERE event_id = ? AND n = 0`, id); err != nil {
		return relay.Claim{}, err
	}
	e.Request, e.ForwardedLines = p.message(), p.Extra
	var attempts []attemptRow
	if err := q.all(&attempts, `SELECT `+attemptColumns+` FROM attempts WHERE event_id = ? ORDER BY n`, id); err != nil {
		return relay.Claim{}, err
	}
	for i := range attempts {
		e.Attempts = append(e.Attempts, attempts[i].attempt())
	}
	return relay.Claim{Event: &e, N: n}, nil
}

// errNotSettled keeps the queue of an alias in order. One attempt is delivered at a time, and
// the result of the last one is not stored yet: it may return to the head of the queue.
var errNotSettled = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 2 * time.Second,
	Detail: "it is not stored yet what became of the last delivery from this queue",
}

// Next claims the oldest attempt of an alias that may be delivered automatically; see
// delivery.Queue. It returns nil when no attempt waits.
func (s *Store) Next(ctx context.Context, alias int64, auto bool) (*relay.Claim, error) {
	if err := s.caughtUp(); err != nil {
		return nil, err
	}
	if err := s.undoClaims(ctx); err != nil {
		return nil, err
	}
	for {
		var waits, taken []int
		err := s.view(ctx, "look for queued attempts", func(q session) error {
			err := q.all(&waits, `SELECT 1 AS one`+oldestQueued, alias, boolToInt(auto)) // spares the writer when nothing waits
			if err == nil && len(waits) > 0 {
				err = q.all(&taken, `SELECT 1 AS one FROM attempts WHERE alias_id = ? AND state = 1 AND from_queue = 1 LIMIT 1`, alias)
			}
			return err
		})
		switch {
		case err != nil || len(waits) == 0:
			return nil, err
		case len(taken) > 0:
			return nil, errNotSettled
		}
		if claim, err := s.claimOldest(ctx, alias, auto); err != nil || claim != nil {
			return claim, err
		}
		// The attempt was canceled or removed meanwhile: another one may wait behind it.
	}
}

const oldestQueued = ` FROM attempts WHERE alias_id = ? AND state = 0 AND (kind = 1 OR released = 1 OR ? = 1)
	ORDER BY received_at, event_id, n LIMIT 1`

// claimOldest claims the oldest attempt. When a transaction is changing the event of that
// attempt, claimOldest waits for it instead of claiming a later attempt, which would break the
// order. It returns nil when the attempt is not queued any more.
func (s *Store) claimOldest(ctx context.Context, alias int64, auto bool) (claim *relay.Claim, err error) {
	var made lostClaim
	err = s.update(ctx, "claim queued attempt", func(c *writeTx) error {
		claim, made = nil, lostClaim{}
		var rows []attemptRow
		if err := c.all(&rows, `SELECT event_id, n, alias_id`+oldestQueued, alias, boolToInt(auto)); err != nil || len(rows) == 0 {
			return err
		}
		r := rows[0]
		if err := c.lockEvents([]relay.ID{r.EventID}); err != nil {
			return err
		}
		made = lostClaim{id: r.EventID, n: r.N, started: micros(s.now()), queue: true}
		if n, err := c.exec(`UPDATE attempts SET state = 1, claim_node = ?, from_queue = 1, started_at = ?
			WHERE event_id = ? AND n = ? AND state = 0`, s.NodeID(), made.started, r.EventID, r.N); err != nil || n == 0 {
			return err
		}
		if _, err := c.exec(`UPDATE events SET state = 1 WHERE id = ? AND attempts = ? AND state < 6`, r.EventID, r.N); err != nil {
			return err
		}
		got, err := c.claim(r.EventID, r.N)
		if err != nil {
			return err
		}
		claim = &got
		c.publish(relay.Change{Kind: relay.ChangeAttempt, Alias: alias, Event: r.EventID, N: r.N}, relay.Change{Kind: relay.ChangeQueue, Alias: alias})
		return nil
	})
	if err != nil {
		s.noteClaim(made, err)
		return nil, err
	}
	return claim, nil
}

// Release permits the automatic delivery of the inbound events that were queued while the
// alias was offline; see delivery.Queue.
func (s *Store) Release(ctx context.Context, who relay.Actor, alias string) (released int, err error) {
	if err := allow(who, relay.ScopeEventsReplay); err != nil {
		return 0, err
	}
	err = s.update(ctx, "release queued events", func(c *writeTx) error {
		a, err := c.alias(who, alias)
		if err != nil {
			return err
		}
		rows, err := c.release(a.ID)
		if released = len(rows); err != nil || released == 0 {
			return err
		}
		c.publish(relay.Change{Kind: relay.ChangeQueue, Alias: a.ID})
		for _, r := range rows {
			c.publish(relay.Change{Kind: relay.ChangeAttempt, Alias: a.ID, Event: r.EventID, N: r.N})
		}
		return c.audit(who, a.Owner, "replay-queued", a.Name, strconv.Itoa(released)+" events")
	})
	return released, err
}

// release marks the queued inbound events of an alias and returns their attempts.
func (c *writeTx) release(alias int64) (released []attemptRow, err error) {
	const waiting = `alias_id = ? AND state = 0 AND kind = 0 AND released = 0`
	var ids []relay.ID
	if err := c.all(&ids, `SELECT event_id FROM attempts WHERE `+waiting+` ORDER BY event_id`, alias); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(ids, lockSlice) {
		if err := c.lockEvents(some); err != nil {
			return nil, err
		}
		query, args, err := sqlx.In(`UPDATE attempts SET released = 1 WHERE event_id IN (?) AND `+waiting+` RETURNING event_id, n`, values(some), alias)
		if err != nil {
			return nil, err
		}
		var rows []attemptRow
		if err := c.all(&rows, query, args...); err != nil {
			return nil, err
		}
		released = append(released, rows...)
	}
	return released, nil
}

// Cancel cancels the queued attempts of an event. It returns conflict when none is queued.
func (s *Store) Cancel(ctx context.Context, who relay.Actor, id relay.ID) error {
	if err := allow(who, relay.ScopeEventsReplay); err != nil {
		return err
	}
	return s.update(ctx, "cancel queued attempts", func(c *writeTx) error {
		e, err := c.event(who, id)
		if err != nil {
			return err
		}
		if err := c.lockEvents([]relay.ID{id}); err != nil {
			return err
		}
		fault := relay.Fault{Code: relay.CodeCanceled, Message: "canceled by " + storableText(who.String()) + " while it waited"}
		var rows []attemptRow
		if err := c.all(&rows, `UPDATE attempts SET state = 5, ended_at = ?, error_code = ?, error_message = ?
			WHERE event_id = ? AND state = 0 RETURNING event_id, n`, micros(s.now()), fault.Code, fault.Message, id); err != nil {
			return err
		}
		if len(rows) == 0 {
			return relay.Errorf(relay.CodeConflict, "nothing of this event waits in the queue")
		}
		for _, r := range rows {
			ended := eventEnd{id: id, n: r.N, state: canceled, code: fault.Code, message: fault.Message}
			if _, err := c.exec(endEvent.one(c.d), ended.args()...); err != nil {
				return err
			}
			c.publish(relay.Change{Kind: relay.ChangeAttempt, Alias: e.AliasID, Event: id, N: r.N})
		}
		c.publish(relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID})
		return c.auditOfAlias(who, e.AliasID, "cancel", id.String(), "")
	})
}

type queueRow struct {
	Alias  int64 `db:"alias_id"`
	Queued int   `db:"queued"`
	Events int   `db:"events"`
	Bytes  int64 `db:"bytes"`
	Oldest int64 `db:"oldest"`
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
		var err error
		if where, args, err = aliasIn(`alias_id`, aliases); err != nil {
			return nil, err
		}
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
	var rows []queueRow
	err := s.view(ctx, "count queues", func(q session) error {
		return q.all(&rows, `SELECT alias_id, COUNT(*) AS queued, SUM(CASE WHEN kind = 0 AND released = 0 THEN 1 ELSE 0 END) AS events,
			CAST(SUM(bytes) AS BIGINT) AS bytes, MIN(received_at) AS oldest FROM attempts WHERE state = 0 AND `+where+` GROUP BY alias_id`, args...)
	})
	out := make(map[int64]relay.QueueStats, len(rows))
	for _, r := range rows {
		out[r.Alias] = relay.QueueStats{Queued: r.Queued, QueuedEvents: r.Events, QueuedBytes: r.Bytes, OldestQueuedAt: fromMicros(r.Oldest)}
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
		in, args, err := aliasIn(`al.id`, some)
		if err != nil {
			return nil, err
		}
		var rows []struct {
			Alias int64  `db:"id"`
			At    *int64 `db:"at"`
		}
		if err := s.view(ctx, "find newest events", func(q session) error {
			return q.all(&rows, `SELECT al.id, (SELECT e.received_at FROM events e WHERE e.alias_id = al.id ORDER BY e.id DESC LIMIT 1) AS at
				FROM aliases al WHERE `+in, args...)
		}); err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r.At != nil {
				out[r.Alias] = fromMicros(*r.At)
			}
		}
	}
	return out, nil
}
