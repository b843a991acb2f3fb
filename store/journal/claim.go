package journal

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/spool"
)

// queueClaim is a claim of the oldest attempt in the queue of an alias. It is either a separate step
// of the journal, or part of the step that ends the previous attempt, so that the claims of many
// aliases share a transaction.
type queueClaim struct {
	relay.NextClaim
	started int64 // time of the claiming transaction; no other claim of the attempt has it

	oldest events.AttemptRow // the attempt to claim
	tried  bool              // a transaction has claimed oldest, and may have been committed
	got    *relay.Claim      // the result; nil if nothing was claimed
	later  bool              // not claimed in this transaction, because the requests of its other claims reach claimBytes
	err    error
}

// claimBytes bounds the requests, in bytes, that one transaction claims and reads.
const claimBytes = 8 << 20

// errNotSettled is the error of a claim while the result of the previous attempt from the queue of the alias
// is not stored yet. That attempt may return to the head of the queue, so a claim of the next one would break
// the order.
var errNotSettled = &relay.Error{
	Code: relay.CodeStoreUnavailable, RetryAfter: 2 * time.Second,
	Detail: "the outcome of the last delivery from this queue is not stored yet",
}

// Next claims the oldest attempt of an alias that may be delivered automatically; see delivery.Queue.
// It returns nil if no attempt waits.
func (j *Journal) Next(next relay.NextClaim) (*relay.Claim, error) {
	for {
		if err := j.spool.CaughtUp(); err != nil {
			return nil, err
		}
		// The id of a claim is made from the alias and belongs to no event. Claims of different aliases get
		// different ids, because groupByEvent would otherwise order them as steps of one event.
		st := &step{Step: spool.Step{Kind: claimStep}, claim: &queueClaim{NextClaim: next}}
		binary.BigEndian.PutUint64(st.ID[8:], uint64(next.Alias))
		ticket := j.enqueueStep(st)
		<-ticket.Done()
		if err := ticket.Err(); err != nil || !st.claim.later {
			return st.claim.got, err
		}
	}
}

// FinishAndClaim is Finish followed by a claim in the same transaction; see delivery.Journal.
func (j *Journal) FinishAndClaim(id relay.ID, a *relay.Attempt, event string, next relay.NextClaim) (*relay.Ticket, func() *relay.Claim) {
	claim := &queueClaim{NextClaim: next}
	ticket := j.enqueueStep(&step{
		Step: spool.Step{Kind: spool.Finish, ID: id, N: a.N, Attempt: a, State: event, Size: attemptSize(a)}, claim: claim,
	})
	return ticket, func() *relay.Claim { return claim.got }
}

// dropClaim gives up the claim of a step whose transaction probably was not committed. If it was committed after
// all, the Requeue that dropClaim enqueues puts the attempt back into the queue. The Requeue waits for a
// transaction that may still commit the claim, and comes before any later claim of the attempt.
func (j *Journal) dropClaim(st *step) {
	c := st.claim
	if c == nil {
		return
	}
	c.got = nil
	if c.tried {
		j.Requeue(c.oldest.EventID, c.oldest.N) // if the Requeue does not find the claim, Reconcile ends the attempt
	}
}

// readClaimed is ClaimedSQL, prepared on SQLite.
var readClaimed = &db.Statement{SQLite: events.ClaimedSQL}

// claimsOf returns the steps with claims, at most one for each alias. It fails further claims of the
// same alias.
func claimsOf(steps []*step) (claims []*step) {
	seen := map[int64]bool{}
	for _, st := range steps {
		if st.claim == nil {
			continue
		}
		st.claim.got, st.claim.later, st.claim.err = nil, false, nil
		if seen[st.claim.Alias] {
			st.setClaimError(errNotSettled)
			continue
		}
		seen[st.claim.Alias] = true
		claims = append(claims, st)
	}
	return claims
}

// setClaimError fails a claim. If the claim is part of the end of an attempt, that end does not fail with it.
func (st *step) setClaimError(err error) {
	st.claim.err = err
	if st.Kind == claimStep {
		st.err = err
	}
}

// chooseCandidates finds the oldest attempts for claims, before the transaction locks events. First it
// locks the rows of the tunnels. A takeover of a tunnel therefore waits for the claims made before it
// and sees them; claims after it fail.
func (w *writer) chooseCandidates(j *Journal, claims []*step) ([]relay.ID, error) {
	may := j.nodes.MayClaim()
	var left []*step
	tunnels := map[string]bool{}
	for _, st := range claims {
		st.claim.oldest = events.AttemptRow{EventID: st.claim.oldest.EventID, N: st.claim.oldest.N}
		if may != nil {
			st.setClaimError(may)
			continue
		}
		if st.claim.Tunnel != "" {
			tunnels[st.claim.Tunnel] = true
		}
		left = append(left, st)
	}
	if err := w.lockTunnels(tunnels); err != nil {
		return nil, err
	}
	var rows [][]any
	byAlias := make(map[int64]*queueClaim, len(left))
	for _, st := range left {
		c := st.claim
		if c.Tunnel != "" && !tunnels[c.Tunnel] {
			st.setClaimError(relay.ErrFenced)
			continue
		}
		if known, err := w.claimedBefore(c); err != nil || known {
			if err != nil {
				return nil, err
			}
			continue
		}
		byAlias[c.Alias] = c
		rows = append(rows, []any{c.Alias, db.BoolToInt(c.Auto)})
	}
	oldest := oldestOnSQLite
	if w.Dialect.SeveralNodes() {
		oldest = oldestOnPostgres
	}
	found, err := db.Returning(w.Batch, oldest, rows, keyFields)
	var ids []relay.ID
	size := int64(0)
	for _, r := range found {
		c := byAlias[r.AliasID]
		if size += min(r.Bytes, relay.InlineBody); size > claimBytes && len(ids) > 0 {
			c.later = true
			continue
		}
		c.oldest, ids = r, append(ids, r.EventID)
	}
	return ids, err
}

// lockTunnels locks the rows of this node's tunnels, in the order that all nodes use, and removes the
// ids of tunnels that are not this node's from the set.
func (w *writer) lockTunnels(tunnels map[string]bool) error {
	if len(tunnels) == 0 {
		return nil
	}
	var here []string
	err := w.AllIn(&here, `SELECT tunnel_id FROM tunnels WHERE tunnel_id IN (?) AND node_id = ? ORDER BY alias_id`+w.Dialect.ForShare(),
		slices.Collect(maps.Keys(tunnels)), w.target.node)
	maps.DeleteFunc(tunnels, func(id string, _ bool) bool { return !slices.Contains(here, id) })
	return err
}

// claimedBefore reports whether an earlier try of the same claim was committed, but its result was lost.
func (w *writer) claimedBefore(c *queueClaim) (bool, error) {
	if !c.tried {
		return false, nil
	}
	c.tried = false
	claim, err := db.RowOf(w.Query, events.ClaimFields, events.ClaimedSQL+` AND a.state = 1 AND a.claim_node = ? AND a.started_at = ?`,
		c.oldest.EventID, c.oldest.EventID, c.oldest.N, w.target.node, c.started)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		w.claimed(c, &claim)
	}
	return true, err
}

// claimed sets the result of a claim.
func (w *writer) claimed(c *queueClaim, got *relay.Claim) {
	c.tried, c.got, c.err = true, got, nil
	w.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: c.Alias, Event: got.Event.ID, N: got.N},
		relay.Change{Kind: relay.ChangeQueue, Alias: c.Alias})
}

// claimCandidates claims the candidates, whose events are locked. The claim of an attempt that was canceled or
// removed after it was chosen fails with errNotSettled, and the caller of Next tries again.
func (w *writer) claimCandidates(claims []*step) error {
	var rows [][]any
	byID := map[relay.AttemptRef]*queueClaim{}
	for _, st := range claims {
		c := st.claim
		interrupted := st.Kind == spool.Finish && (st.err != nil || st.Attempt.State == relay.StateInterrupted)
		if c.err != nil || c.got != nil || c.oldest.AliasID == 0 || interrupted {
			continue
		}
		st.setClaimError(errNotSettled)
		byID[c.oldest.Ref()], c.started = c, db.Micros(w.Now())
		rows = append(rows, []any{c.oldest.EventID, c.oldest.N, c.Alias, c.started})
	}
	if len(rows) == 0 {
		return nil
	}
	list, err := w.claimRows(rows)
	if err != nil {
		return err
	}
	for i := range list {
		w.claimed(byID[relay.AttemptRef{Event: list[i].Event.ID, N: list[i].N}], &list[i])
	}
	for _, st := range claims {
		if st.Kind == claimStep {
			st.err = st.claim.err
		}
	}
	return nil
}

// claimRows claims attempts and reads them with their requests.
func (w *writer) claimRows(rows [][]any) ([]relay.Claim, error) {
	if w.Dialect.SeveralNodes() {
		return db.Returning(w.Batch, claimOnPostgres, rows, events.ClaimFields, w.target.node)
	}
	claimed, err := db.Returning(w.Batch, claimOnSQLite, rows, keyFields, w.target.node)
	if err != nil {
		return nil, err
	}
	taken, read := make([][]any, len(claimed)), make([][]any, len(claimed))
	for i, r := range claimed {
		taken[i], read[i] = []any{r.EventID, r.N, w.target.node}, []any{r.EventID, r.EventID, r.N}
	}
	if err = w.Run(claimInQueue, taken); err == nil {
		err = w.Run(eventDelivering, taken)
	}
	if err != nil {
		return nil, err
	}
	return db.Returning(w.Batch, readClaimed, read, events.ClaimFields)
}

// keyFields returns the destinations of a Scan of the columns event_id, n, alias_id and bytes.
func keyFields(r *events.AttemptRow) []any { return []any{&r.EventID, &r.N, &r.AliasID, &r.Bytes} }

// oldestOnPostgres and oldestOnSQLite find the oldest attempt of each alias that may be claimed. Their
// parameters are, for each alias, its id and a number; 1 = events that were not released may be claimed too.
// Without statistics, Postgres expects that a plain condition matches few attempts, and reads and sorts the
// whole queue of the alias. With the CASE it expects half of them to match, and reads only the beginning of
// the index.
var (
	oldestOnPostgres = db.NewStatement(`bigint bigint`,
		`SELECT oldest.event_id, oldest.n, oldest.alias_id, oldest.bytes FROM (%s) v (valias, vauto) CROSS JOIN LATERAL
			(SELECT event_id, n, alias_id, bytes FROM queue WHERE alias_id = v.valias AND CASE WHEN claim_node = '' THEN kind = 1 OR released = 1 OR v.vauto = 1 END
				ORDER BY received_at, event_id, n LIMIT 1) oldest`)
	oldestOnSQLite = db.NewStatement(`bigint bigint`,
		`WITH v (valias, vauto) AS (%s)
			SELECT event_id, n, alias_id, bytes FROM queue WHERE alias_id = (SELECT valias FROM v) AND claim_node = ''
				AND (kind = 1 OR released = 1 OR (SELECT vauto FROM v) = 1)
			ORDER BY received_at, event_id, n LIMIT 1`)
)

const claimSQL = `UPDATE attempts SET state = 1, claim_node = ?, from_queue = 1, started_at = v.vstarted, released = ` + events.ReleasedWhileQueued + `
	FROM v WHERE event_id = v.vid AND n = v.vn AND state = 0 {event_id} AND NOT EXISTS (SELECT 1 FROM queue w WHERE w.alias_id = v.valias AND w.claim_node <> '')
		AND EXISTS (SELECT 1 FROM aliases al WHERE al.id = v.valias) RETURNING event_id, n, alias_id, bytes`

// claimOnPostgres and claimOnSQLite claim attempts, at most one of each alias, and none while another attempt
// from the queue of the alias is being delivered. claimOnPostgres also returns the events. OFFSET 0 makes the
// planner look up each row by its key; without statistics it otherwise reads the whole table.
var (
	claimOnPostgres = db.NewStatement(`uuid bigint bigint bigint`,
		`WITH v (vid, vn, valias, vstarted) AS (%s), a AS (`+claimSQL+`, claim_node, kind, state, received_at, started_at, actor, released),
			waiting AS (UPDATE queue SET claim_node = a.claim_node FROM a WHERE queue.event_id = a.event_id AND queue.n = a.n),
			delivering AS (UPDATE events SET state = 1 FROM a WHERE id = a.event_id AND attempts = a.n AND events.state NOT IN (6, 7) {id})
			`+events.ClaimedColumns+` FROM a
			CROSS JOIN LATERAL (SELECT * FROM events WHERE id = a.event_id {id} OFFSET 0) e
			CROSS JOIN LATERAL (SELECT * FROM payloads WHERE event_id = a.event_id AND n = 0 {event_id} OFFSET 0) p
			JOIN aliases al ON al.id = e.alias_id`)
	claimOnSQLite = db.NewStatement(`uuid bigint bigint bigint`, `WITH v (vid, vn, valias, vstarted) AS (%s) `+claimSQL)

	// claimInQueue and eventDelivering do on SQLite the updates of queue and events that
	// claimOnPostgres makes together with the claim.
	claimInQueue = db.NewStatement(`uuid bigint text`,
		`WITH v (vid, vn, vnode) AS (%s) UPDATE queue SET claim_node = v.vnode FROM v WHERE event_id = v.vid AND n = v.vn`)
	eventDelivering = db.NewStatement(`uuid bigint text`,
		`WITH v (vid, vn, vnode) AS (%s) UPDATE events SET state = 1 FROM v WHERE id = v.vid AND attempts = v.vn AND state NOT IN (6, 7)`)
)
