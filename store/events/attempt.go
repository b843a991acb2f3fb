package events

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"relay"
	"relay/store/db"
)

// States is the list of states, by their codes; see package migrations.
var States = []string{
	relay.StateQueued, relay.StateDelivering, relay.StateDelivered, relay.StateFailed,
	relay.StateInterrupted, relay.StateCanceled, relay.StateRejected, relay.StateIncomplete, relay.StateAnswered,
}

const (
	Queued = iota
	Delivering
	Delivered
	Failed
	Interrupted
	Canceled
	Rejected
	Incomplete
	Answered
)

// StateName returns the state with a code; "" for a code that a later version wrote.
func StateName(code int) string {
	if code < 0 || code >= len(States) {
		return ""
	}
	return States[code]
}

// StateCode returns the stored form of a state.
func StateCode(state string) (int, error) {
	if i := slices.Index(States, state); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("unknown state %q", state)
}

var kinds = []string{relay.KindOriginal, relay.KindReplay}

const (
	Original = iota
	Replay
)

// KindCode returns the stored form of the kind of an attempt.
func KindCode(a *relay.Attempt) int { return db.BoolToInt(a.Kind == relay.KindReplay) }

// AttemptColumns are the columns of a new attempt.
const AttemptColumns = `event_id, n, alias_id, kind, state, received_at, started_at, ended_at, actor, error_code, error_message,
	released, from_queue, connection, identical, timing, has_response, status, response_state, claim_node, claim_boot, bytes`

// AttemptTypes are the types of AttemptColumns in Postgres.
const AttemptTypes = `uuid bigint bigint bigint bigint bigint bigint bigint text text text
	bigint bigint text bigint bytea bigint bigint text text bigint bigint`

// attemptQuery reads attempts for display, with the name of the node that ran them, and whether queued
// ones were released.
const attemptQuery = `SELECT event_id, n, kind, state, received_at, started_at, ended_at, actor, error_code, error_message,
	` + ReleasedWhileQueued + `, connection, identical, timing, has_response, status, response_state, caller_gone, via,
	COALESCE((SELECT name FROM node_names WHERE id = attempts.claim_node), ''), claim_node FROM attempts WHERE `

// storedAttempt is a row of attemptQuery.
type storedAttempt struct {
	event relay.ID
	relay.Attempt
}

func (a *storedAttempt) fields() []any {
	timing := db.Column(func(stored any) {
		packed, _ := stored.([]byte)
		a.Timing, a.HasTiming = unpackTiming(packed)
	})
	return []any{
		&a.event, &a.N, db.Code(&a.Kind, kinds), db.Code(&a.State, States), (*db.Time)(&a.ReceivedAt), (*db.Time)(&a.StartedAt), (*db.Time)(&a.EndedAt),
		&a.Actor, faultCode(&a.Error), faultMessage(&a.Error), &a.Released, &a.Connection, &a.Identical, timing,
		&a.HasResponse, &a.Status, &a.ResponseState, &a.CallerGone, &a.Via, &a.Node, db.Column(func(stored any) {
			if id, _ := stored.(string); a.Node == "" { // the id of a node whose row was removed begins with the name of the node
				a.Node = id[:max(strings.LastIndexByte(id, '/'), 0)]
			}
		}),
	}
}

// AttemptRow holds the fields of an attempt that the store itself needs.
type AttemptRow struct {
	EventID    relay.ID `db:"event_id"`
	N          int      `db:"n"`
	AliasID    int64    `db:"alias_id"`
	Kind       int      `db:"kind"`
	State      int      `db:"state"`
	ReceivedAt int64    `db:"received_at"`
	StartedAt  int64    `db:"started_at"`
	EndedAt    int64    `db:"ended_at"`
	FromQueue  int      `db:"from_queue"`
	Released   int      `db:"released"`
	ClaimNode  string   `db:"claim_node"`
	Bytes      int64    `db:"bytes"`
}

// AttemptRowColumns are the columns of AttemptRow.
const AttemptRowColumns = `event_id, n, alias_id, kind, state, received_at, started_at, ended_at, from_queue, claim_node, bytes`

// AttemptValues returns the values of AttemptColumns for a new attempt. node is the node that has claimed the
// attempt; it is not stored if the attempt is queued. bytes is the size of the request as RequestBytes
// returns it.
func AttemptValues(e *relay.Event, a *relay.Attempt, state int, node string, bytes int64) []any {
	if state == Queued {
		node = ""
	}
	code, message := FaultText(a.Error)
	return []any{
		e.ID, a.N, e.AliasID, KindCode(a), state, db.Micros(a.ReceivedAt), db.Micros(a.StartedAt), db.Micros(a.EndedAt), db.StorableText(a.Actor), code, message,
		db.BoolToInt(a.Released), 0, db.StorableText(a.Connection), Identical(a), PackTiming(a), db.BoolToInt(a.HasResponse), a.Status,
		db.StorableText(a.ResponseState), node, 0, bytes,
	}
}

// Identical returns the field Identical of an attempt as the database stores it: 1, 0, or nil if it is not set.
func Identical(a *relay.Attempt) any {
	if a.Identical == nil {
		return nil
	}
	return db.BoolToInt(*a.Identical)
}

// fill copies the response and the sent and interim heads from p to the attempt.
func (p *payload) fill(a *relay.Attempt) {
	a.SentHead, a.Interim = p.extra, unpackInterim(p.interim)
	if a.HasResponse {
		a.Response = p.Message
	}
}

// HasPayload reports whether an attempt has bytes to store.
func HasPayload(a *relay.Attempt) bool {
	return a.HasResponse || len(a.SentHead) > 0 || len(a.Interim) > 0
}

// fillAttempts adds the messages in list to attempts.
func fillAttempts(attempts []relay.Attempt, list []*payload) {
	byN := make(map[int]*payload, len(list))
	for _, p := range list {
		byN[p.n] = p
	}
	for i := range attempts {
		if p := byN[attempts[i].N]; p != nil {
			p.fill(&attempts[i])
		}
	}
}

// readAttempts reads the attempts of an event with the given numbers, without their messages. The result is
// ordered by number.
func readAttempts(q db.Query, e *relay.Event, numbers []int) ([]relay.Attempt, error) {
	if len(numbers) == 0 {
		return nil, nil
	}
	in, args := db.ColumnIn(`n`, numbers)
	rows, err := db.RowsOf(q, (*storedAttempt).fields, attemptQuery+`event_id = ? AND `+in+` ORDER BY n`, append([]any{e.ID}, args...)...)
	if err != nil {
		return nil, err
	}
	var waiting []relay.AttemptRef
	attempts := make([]relay.Attempt, 0, len(rows))
	for i := range rows {
		if attempts = append(attempts, rows[i].Attempt); rows[i].State == relay.StateQueued {
			waiting = append(waiting, relay.AttemptRef{Event: e.ID, N: rows[i].N})
		}
	}
	if len(waiting) == 0 {
		return attempts, nil
	}
	positions, err := queuePositions(q, e.AliasID, waiting)
	for i := range attempts {
		attempts[i].Position = positions[relay.AttemptRef{Event: e.ID, N: attempts[i].N}]
	}
	return attempts, err
}

// Attempts reads attempts of an event that the actor may see, the newest first. A single attempt without its
// body is read without waiting for a turn (see heavyReads). The result of a replay is read this way, and the
// error overloaded would suggest that the replay was not made.
func (s *Store) Attempts(ctx context.Context, who relay.Actor, id relay.ID, page relay.AttemptPage) (attempts []relay.Attempt, err error) {
	if page.Limit > 1 || page.MaxBody > 0 {
		release, err := s.heavyReads.acquire(ctx, who)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	before, limit := page.Before, max(1, min(page.Limit, relay.MaxAttempts))
	if before <= 0 || before > math.MaxInt32 {
		before = math.MaxInt32
	}
	only := ``
	if page.Answered {
		only = ` AND has_response = 1`
	}
	if page.Ended {
		only += ` AND state >= 2`
	}
	var list []*payload
	err = s.db.Snapshot(ctx, "read attempts", func(q db.Query) error {
		e, err := FindEvent(q, who, id)
		if err != nil {
			return err
		}
		var numbers []int // the newest come first, because they have priority if not all bodies fit
		if err := q.All(&numbers, `SELECT n FROM attempts WHERE event_id = ? AND n < ?`+only+` ORDER BY n DESC LIMIT ?`, id, before, limit); err != nil || len(numbers) == 0 {
			return err
		}
		if attempts, err = readAttempts(q, &e, numbers); err == nil {
			list, err = readMessages(q, id, numbers, page.MaxBody)
		}
		return err
	})
	if err == nil {
		err = s.db.View(ctx, "read attempts", func(q db.Query) error { return readBodies(q, id, list) })
	}
	fillAttempts(attempts, list)
	slices.Reverse(attempts)
	return attempts, err
}

// AttemptHeads reads attempts of one alias without their response bodies, for the feed. Deleted
// attempts are left out.
func (s *Store) AttemptHeads(ctx context.Context, alias int64, refs []relay.AttemptRef) (map[relay.AttemptRef]*relay.Attempt, error) {
	heads := make(map[relay.AttemptRef]*relay.Attempt, len(refs))
	if len(refs) == 0 {
		return heads, nil
	}
	asked := make(map[relay.AttemptRef]bool, len(refs))
	ids, numbers := map[relay.ID]bool{}, map[int]bool{}
	for _, r := range refs {
		asked[r], ids[r.Event], numbers[r.N] = true, true, true
	}
	// The two conditions also select a few attempts that are not in refs; the loop below drops them.
	where, args, err := sqlx.In(`event_id IN (?) AND n IN (?)`, slices.Collect(maps.Keys(ids)), slices.Collect(maps.Keys(numbers)))
	if err != nil {
		return nil, err
	}
	err = s.db.View(ctx, "read attempts", func(q db.Query) error {
		attempts, err := db.RowsOf(q, (*storedAttempt).fields, attemptQuery+where, args...)
		if err != nil {
			return err
		}
		for i := range attempts {
			if ref := (relay.AttemptRef{Event: attempts[i].event, N: attempts[i].N}); asked[ref] {
				heads[ref] = &attempts[i].Attempt
			}
		}
		payloads, err := db.RowsOf(q, (*payload).fields, payloadQuery+where, args...)
		if err != nil {
			return err
		}
		read, err := db.RowsOf(q, (*payload).headFields, headQuery+where, args...)
		byRef := make(map[relay.AttemptRef]*payload, len(read))
		for i := range read {
			byRef[relay.AttemptRef{Event: read[i].event, N: read[i].n}] = &read[i]
		}
		for i := range payloads {
			p := &payloads[i]
			ref := relay.AttemptRef{Event: p.event, N: p.n}
			if a, head := heads[ref], byRef[ref]; a != nil && head != nil {
				p.Head, p.Lines, p.extra, p.interim = head.Head, head.Lines, head.extra, head.interim
				p.fill(a)
			}
		}
		if err != nil {
			return err
		}
		if err := readPositions(q, alias, heads); err != nil {
			return err
		}
		return readAttemptCauses(q, heads)
	})
	return heads, err
}

// readPositions reads the positions of waiting attempts in the queue.
func readPositions(q db.Query, alias int64, heads map[relay.AttemptRef]*relay.Attempt) error {
	var waiting []relay.AttemptRef
	for ref, a := range heads {
		if a.State == relay.StateQueued {
			waiting = append(waiting, ref)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	positions, err := queuePositions(q, alias, waiting)
	for _, ref := range waiting { // positions may also have other attempts of the same events
		heads[ref].Position = positions[ref]
	}
	return err
}

// Ref returns the reference of the attempt.
func (r *AttemptRow) Ref() relay.AttemptRef { return relay.AttemptRef{Event: r.EventID, N: r.N} }

// interrupt ends an attempt whose delivering process has ended. The caller has locked the event.
func interrupt(c *db.Tx, row *AttemptRow, fault relay.Fault) error {
	now := db.Micros(c.Now())
	n, err := c.Exec(`UPDATE attempts SET state = 4, ended_at = ?, error_code = ?, error_message = ?
		WHERE event_id = ? AND n = ? AND state = 1 AND claim_node = ?`,
		now, fault.Code, fault.Message, row.EventID, row.N, row.ClaimNode)
	if err != nil || n == 0 {
		return err
	}
	if err := c.RunOne(EndEvent, []any{row.EventID, row.N, Interrupted, fault.Code, fault.Message, 0, nil, ""}); err != nil {
		return err
	}
	c.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: row.AliasID, Event: row.EventID, N: row.N})
	if row.FromQueue == 0 {
		return nil
	}
	DequeueAttempt(c, row.EventID, row.N)
	return Requeue(c, row)
}

const maxRequeues = 3

// Requeue adds a new queued attempt for one that was interrupted after it had been taken from the
// queue, at most three times for an event. The new attempt gets the place of the interrupted one in the queue.
func Requeue(c *db.Tx, row *AttemptRow) error {
	var before int
	if err := c.Get(&before, `SELECT COUNT(*) FROM attempts WHERE event_id = ? AND actor = ?`, row.EventID, string(relay.ActorQueue)); err != nil {
		return err
	}
	if before >= maxRequeues {
		return nil
	}
	var n int
	if err := c.Get(&n, `UPDATE events SET attempts = attempts + 1, state = CASE WHEN state IN (6, 7) THEN state ELSE 0 END,
		error_code = '', error_message = '' WHERE id = ? RETURNING attempts`, row.EventID); err != nil {
		return err
	}
	c.Do(`INSERT INTO attempts (`+AttemptColumns+`) VALUES (?, ?, ?, 1, 0, ?, 0, 0, ?, '', '', 0, 0, '', NULL, NULL, 0, 0, '', '', 0, ?)`,
		row.EventID, n, row.AliasID, row.ReceivedAt, string(relay.ActorQueue), row.Bytes)
	c.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: row.AliasID, Event: row.EventID, N: n},
		relay.Change{Kind: relay.ChangeQueue, Alias: row.AliasID})
	EnqueueAttempt(c, row.EventID, n)
	return nil
}

var interruptedFault = relay.Fault{
	Code: relay.StateInterrupted, Message: "the relay stopped while this attempt was under way; replay it if the local server did not get it",
}

// InterruptSome marks up to 200 attempts in progress interrupted, and returns their number. The parameter
// where is an SQL condition that selects the attempts.
func InterruptSome(c *db.Tx, where string, args ...any) (int, error) {
	var rows []AttemptRow
	if err := c.All(&rows, `SELECT `+AttemptRowColumns+` FROM attempts WHERE state = 1 AND `+where+` LIMIT 200`, args...); err != nil {
		return 0, err
	}
	return len(rows), InterruptAll(c, rows, interruptedFault)
}

// InterruptAll locks the events of attempts and then ends the attempts; see interrupt.
func InterruptAll(c *db.Tx, rows []AttemptRow, fault relay.Fault) error {
	ids := make([]relay.ID, len(rows))
	for i := range rows {
		ids[i] = rows[i].EventID
	}
	if err := LockEvents(c, ids); err != nil {
		return err
	}
	for i := range rows {
		if err := interrupt(c, &rows[i], fault); err != nil {
			return err
		}
	}
	return nil
}
