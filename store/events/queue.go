package events

import (
	"context"
	"slices"
	"time"

	"relay"
	"relay/record"
	"relay/store/db"
)

// queueColumns are the columns of queue that have the same name and value in attempts. An attempt has
// a row in queue exactly while it is queued, or while it is being delivered from the queue; in the
// latter case claim_node is set. The transaction that changes the state of the attempt also changes
// the queue, after it has locked the event; see LockEvents.
const queueColumns = `event_id, n, alias_id, received_at, kind, released, bytes`

// InsertQueue adds queued attempts of new events.
var InsertQueue = db.InsertInto("queue", queueColumns, `uuid bigint bigint bigint bigint bigint bigint`)

// EnqueueAttempt adds a queued attempt of a locked event to the queue. If the queue has the attempt already, it
// ends the claim of the attempt.
func EnqueueAttempt(c *db.Tx, id relay.ID, n int) {
	c.Do(`INSERT INTO queue (`+queueColumns+`) SELECT `+queueColumns+` FROM attempts WHERE event_id = ? AND n = ?
		ON CONFLICT (event_id, n) DO UPDATE SET claim_node = ''`, id, n)
}

// DequeueAttempt removes an attempt of a locked event from the queue.
func DequeueAttempt(c *db.Tx, id relay.ID, n int) {
	c.Do(`DELETE FROM queue WHERE event_id = ? AND n = ?`, id, n)
}

// ReleasedWhileQueued is the SQL expression for the value that attempts.released gets when an attempt
// leaves the queue.
const ReleasedWhileQueued = `COALESCE((SELECT w.released FROM queue w WHERE w.event_id = attempts.event_id AND w.n = attempts.n), released)`

// queuePositions returns the positions of attempts in the queue of their alias, counted from 1.
// Attempts that are not queued are left out; other queued attempts of the same events are included.
// One query numbers the whole queue, however many attempts are asked for.
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

// manyAliases is the number of aliases from which a statement no longer names each alias. SQLite and
// Postgres limit the parameters of a statement, and each parameter lengthens planning.
const manyAliases = 64

// QueueStats counts the queued attempts of the given aliases. The result contains each alias.
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

// lastEventsSlice is the number of aliases in one statement of LastEvents. On Postgres each alias
// needs a look-up in the index of every day.
const lastEventsSlice = 1000

// LastEvents returns the arrival of the newest event of each alias. Aliases without events are left out.
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

// NotReplayable returns the error that says why the event e cannot be replayed.
func NotReplayable(e *relay.Event) *relay.Error {
	return &relay.Error{
		Code: relay.CodeEventNotReplayable, Reason: e.Blocker, Detail: "this event cannot be replayed: " + record.BlockerText(e.Blocker),
	}
}
