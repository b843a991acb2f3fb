package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"relay"
)

// states in the order of their codes; see package migrations.
var states = []string{
	relay.StateQueued, relay.StateDelivering, relay.StateDelivered, relay.StateFailed,
	relay.StateInterrupted, relay.StateCanceled, relay.StateRejected, relay.StateIncomplete,
}

const (
	queued = iota
	delivering
	delivered
	failed
	interrupted
	canceled
	rejected
	incomplete
)

func stateCode(state string) (int, error) {
	if i := slices.Index(states, state); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("unknown state %q", state)
}

var kinds = []string{relay.KindOriginal, relay.KindReplay}

const (
	original = iota
	replay
)

func kindCode(a *relay.Attempt) int { return boolToInt(a.Kind == relay.KindReplay) }

const attemptColumns = `event_id, n, alias_id, kind, state, received_at, started_at, ended_at, actor, error_code, error_message,
	released, from_queue, connection, identical, timing, has_response, status, response_state, claim_node, claim_boot, bytes`

// attemptQuery reads attempts as they are shown: with the name of the node that ran them, and
// whether they were released while they wait.
var attemptQuery = `SELECT ` + strings.Replace(attemptColumns, `released`, releasedWhileQueued+` AS released`, 1) + `,
	COALESCE((SELECT name FROM node_names WHERE id = attempts.claim_node), '') AS node_name FROM attempts WHERE `

type attemptRow struct {
	EventID       relay.ID `db:"event_id"`
	N             int      `db:"n"`
	AliasID       int64    `db:"alias_id"`
	Kind          int      `db:"kind"`
	State         int      `db:"state"`
	ReceivedAt    int64    `db:"received_at"`
	StartedAt     int64    `db:"started_at"`
	EndedAt       int64    `db:"ended_at"`
	Actor         string   `db:"actor"`
	ErrorCode     string   `db:"error_code"`
	ErrorMessage  string   `db:"error_message"`
	Released      int      `db:"released"`
	FromQueue     int      `db:"from_queue"`
	Connection    string   `db:"connection"`
	Identical     *int64   `db:"identical"`
	Timing        []byte   `db:"timing"`
	HasResponse   int      `db:"has_response"`
	Status        int      `db:"status"`
	ResponseState string   `db:"response_state"`
	ClaimNode     string   `db:"claim_node"`
	ClaimBoot     int64    `db:"claim_boot"` // 0 since nodes have ids
	Bytes         int64    `db:"bytes"`
	NodeName      string   `db:"node_name"` // read by attemptQuery only
}

func (r *attemptRow) attempt() relay.Attempt {
	a := relay.Attempt{
		N: r.N, Kind: kinds[r.Kind&1], State: states[r.State&7],
		ReceivedAt: fromMicros(r.ReceivedAt), StartedAt: fromMicros(r.StartedAt), EndedAt: fromMicros(r.EndedAt),
		Actor: r.Actor, Error: faultOf(r.ErrorCode, r.ErrorMessage), Released: r.Released != 0, Connection: r.Connection,
		HasResponse: r.HasResponse != 0, Status: r.Status, ResponseState: r.ResponseState,
		Node: r.NodeName,
	}
	if r.Identical != nil {
		same := *r.Identical != 0
		a.Identical = &same
	}
	a.Timing, a.HasTiming = unpackTiming(r.Timing)
	return a
}

func faultOf(code, message string) *relay.Fault {
	if code == "" {
		return nil
	}
	return &relay.Fault{Code: code, Message: message}
}

func faultText(f *relay.Fault) (code, message string) {
	if f == nil {
		return "", ""
	}
	return storableText(f.Code), storableText(f.Message)
}

// newAttemptRow is the row of a new attempt, whose request counts bytes in the queue. Unless it is
// queued, the node has claimed it.
func newAttemptRow(event relay.ID, alias int64, a *relay.Attempt, state int, node string, bytes int64) attemptRow {
	if state == queued {
		node = ""
	}
	r := attemptRow{
		EventID: event, N: a.N, AliasID: alias, Kind: kindCode(a), State: state, ReceivedAt: micros(a.ReceivedAt), StartedAt: micros(a.StartedAt),
		EndedAt: micros(a.EndedAt), Actor: storableText(a.Actor), Released: boolToInt(a.Released), Connection: storableText(a.Connection),
		Timing: packTiming(a), HasResponse: boolToInt(a.HasResponse), Status: a.Status, ResponseState: storableText(a.ResponseState),
		ClaimNode: node, Bytes: bytes,
	}
	r.ErrorCode, r.ErrorMessage = faultText(a.Error)
	if a.Identical != nil {
		same := int64(boolToInt(*a.Identical))
		r.Identical = &same
	}
	return r
}

// values are those of attemptColumns.
func (r *attemptRow) values() []any {
	return []any{
		r.EventID, r.N, r.AliasID, r.Kind, r.State, r.ReceivedAt, r.StartedAt, r.EndedAt, r.Actor, r.ErrorCode, r.ErrorMessage,
		r.Released, r.FromQueue, r.Connection, r.Identical, r.Timing, r.HasResponse, r.Status, r.ResponseState, r.ClaimNode, r.ClaimBoot, r.Bytes,
	}
}

// fillAttempt adds the bytes of an attempt.
func fillAttempt(a *relay.Attempt, p *payloadRow) {
	a.SentHead, a.Interim = p.Extra, unpackInterim(p.Interim)
	if a.HasResponse {
		a.Response = p.message()
	}
}

// hasPayload reports whether an attempt has bytes to store.
func hasPayload(a *relay.Attempt) bool {
	return a.HasResponse || len(a.SentHead) > 0 || len(a.Interim) > 0
}

// AttemptHeads reads attempts without their response bodies and without their positions in
// the queue, for the feed. Those that are gone are left out.
func (s *Store) AttemptHeads(ctx context.Context, refs []relay.AttemptRef) (map[relay.AttemptRef]*relay.Attempt, error) {
	heads := make(map[relay.AttemptRef]*relay.Attempt, len(refs))
	if len(refs) == 0 {
		return heads, nil
	}
	asked := make(map[relay.AttemptRef]bool, len(refs))
	ids, numbers := map[relay.ID]bool{}, map[int]bool{}
	for _, r := range refs {
		asked[r], ids[r.Event], numbers[r.N] = true, true, true
	}
	// Few attempts have another number of the list than the one that is asked for.
	where, args, err := sqlx.In(`event_id IN (?) AND n IN (?)`, slices.Collect(maps.Keys(ids)), slices.Collect(maps.Keys(numbers)))
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "read attempts", func(q session) error {
		var rows []attemptRow
		if err := q.all(&rows, attemptQuery+where, args...); err != nil {
			return err
		}
		for i := range rows {
			if ref := rows[i].ref(); asked[ref] {
				a := rows[i].attempt()
				heads[ref] = &a
			}
		}
		var payloads []struct {
			EventID relay.ID `db:"event_id"`
			payloadRow
		}
		if err := q.all(&payloads, `SELECT event_id, n, head, lines, framing, NULL AS body, parts, stored, size, sha256, state, extra, interim
			FROM payloads WHERE `+where, args...); err != nil {
			return err
		}
		for i := range payloads {
			if a := heads[relay.AttemptRef{Event: payloads[i].EventID, N: payloads[i].N}]; a != nil {
				fillAttempt(a, &payloads[i].payloadRow)
			}
		}
		return nil
	})
	return heads, err
}

func (r *attemptRow) ref() relay.AttemptRef { return relay.AttemptRef{Event: r.EventID, N: r.N} }

// interrupt ends an attempt whose delivering process has ended. The caller has locked the
// event.
func (c *writeTx) interrupt(row *attemptRow, fault relay.Fault) error {
	now := micros(c.now())
	n, err := c.exec(`UPDATE attempts SET state = 4, ended_at = ?, error_code = ?, error_message = ?
		WHERE event_id = ? AND n = ? AND state = 1 AND claim_node = ?`,
		now, fault.Code, fault.Message, row.EventID, row.N, row.ClaimNode)
	if err != nil || n == 0 {
		return err
	}
	if err := c.runOne(endEvent, []any{row.EventID, row.N, interrupted, fault.Code, fault.Message, 0, nil, ""}); err != nil {
		return err
	}
	c.publish(relay.Change{Kind: relay.ChangeAttempt, Alias: row.AliasID, Event: row.EventID, N: row.N})
	if row.FromQueue == 0 {
		return nil
	}
	c.dequeueAttempt(row.EventID, row.N)
	return c.requeue(row)
}

const maxRequeues = 3

// requeue appends a new queued attempt for one that was interrupted after it had
// been taken from the queue, at most three times for an event. It takes the place
// in the queue that the interrupted one had.
func (c *writeTx) requeue(row *attemptRow) error {
	var before int
	if err := c.get(&before, `SELECT COUNT(*) FROM attempts WHERE event_id = ? AND actor = ?`, row.EventID, string(relay.ActorQueue)); err != nil {
		return err
	}
	if before >= maxRequeues {
		return nil
	}
	var n int
	if err := c.get(&n, `UPDATE events SET attempts = attempts + 1, state = CASE WHEN state >= 6 THEN state ELSE 0 END,
		error_code = '', error_message = '' WHERE id = ? RETURNING attempts`, row.EventID); err != nil {
		return err
	}
	c.do(`INSERT INTO attempts (`+attemptColumns+`) VALUES (?, ?, ?, 1, 0, ?, 0, 0, ?, '', '', 0, 0, '', NULL, NULL, 0, 0, '', '', 0, ?)`,
		row.EventID, n, row.AliasID, row.ReceivedAt, string(relay.ActorQueue), row.Bytes)
	c.publish(relay.Change{Kind: relay.ChangeAttempt, Alias: row.AliasID, Event: row.EventID, N: n},
		relay.Change{Kind: relay.ChangeQueue, Alias: row.AliasID})
	c.enqueueAttempt(row.EventID, n)
	return nil
}

var interruptedFault = relay.Fault{
	Code: relay.StateInterrupted, Message: "the relay stopped while this attempt was under way; replay it if the local server did not get it",
}

// sweep ends every attempt whose node is no row of nodes: it was left by an earlier version,
// or written by a node in the moment in which it was swept. It returns how many there were.
func (s *Store) sweep(ctx context.Context) (int, error) {
	total := 0
	for {
		n := 0
		err := s.update(ctx, "sweep interrupted attempts", func(c *writeTx) (err error) {
			n, err = c.interruptSome(`NOT EXISTS (SELECT 1 FROM nodes WHERE id = attempts.claim_node)`)
			return err
		})
		if total += n; err != nil || n == 0 {
			return total, err
		}
	}
}

// interruptSome ends up to 200 attempts under way that match where, and returns how many
// there were.
func (c *writeTx) interruptSome(where string, args ...any) (int, error) {
	var rows []attemptRow
	if err := c.all(&rows, `SELECT `+attemptColumns+` FROM attempts WHERE state = 1 AND `+where+` LIMIT 200`, args...); err != nil {
		return 0, err
	}
	ids := make([]relay.ID, len(rows))
	for i := range rows {
		ids[i] = rows[i].EventID
	}
	if err := c.lockEvents(ids); err != nil {
		return 0, err
	}
	for i := range rows {
		if err := c.interrupt(&rows[i], interruptedFault); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}
