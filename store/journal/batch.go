package journal

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/spool"
)

// writeTarget holds the database handle that writes the steps, and the node in whose name they are written.
type writeTarget struct {
	db           *sqlx.DB
	node, former string // ids of the node: the present one, and those before its last rejoins, separated by spaces
	name         string // name of the node
	// replaying is set for steps from the spool. Some of them may be in the database
	// already, because the result of their commit was lost.
	replaying bool
}

// claimants returns the ids under which the node may have claimed the attempts that it ends.
func (t *writeTarget) claimants() []string { return append(strings.Fields(t.former), t.node) }

// writeSteps makes steps durable in one transaction, and returns the changes to publish after it.
func (j *Journal) writeSteps(ctx context.Context, steps []*step) ([]relay.Change, error) {
	node, former := j.nodes.Claimant()
	return j.writeStepsAs(ctx, &writeTarget{db: j.db.Journal, node: node, former: former, name: j.nodes.NodeName()}, steps)
}

// writeStepsAs is writeSteps with the node and the database handle of the parameter by.
func (j *Journal) writeStepsAs(ctx context.Context, by *writeTarget, steps []*step) ([]relay.Change, error) {
	if single := j.db.Single(ctx); single != nil {
		if list := groupByEvent(steps); onlyNewEvents(list) {
			w := &writer{Batch: single, target: by}
			if err := j.insertNewEvents(w, list); err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(list, func(u *eventSteps) bool { return u.insert.merged < len(u.steps) }) {
				j.countStored(w)
				return w.Changes, nil
			}
			// A part of the batch was stored before, so the rest of the steps needs a transaction.
		}
	}
	return j.inBatch(ctx, by, func(w *writer) error { return j.putSteps(w, steps) })
}

// onlyNewEvents reports whether the statement that inserts new events covers all steps of a batch.
func onlyNewEvents(list []*eventSteps) bool {
	for _, u := range list {
		if err := u.merge(); err != nil || u.insert == nil || u.insert.merged < len(u.steps) || u.insert.request.Body.Parts > 0 {
			return false
		}
		if a := u.insert.attempt; a != nil && (a.State == relay.StateQueued || a.Response.Body.Parts > 0) {
			return false
		}
		for _, column := range events.RareColumns {
			if column.Values(u.insert.event, u.insert.attempt) != nil {
				return false
			}
		}
		for _, st := range u.steps {
			if st.err = nil; st.claim != nil {
				return false
			}
		}
	}
	return true
}

// putSteps writes steps. First come the parts of large bodies, because the rows of messages refer to
// them. New events follow, merged with their ends if these are in the batch. The rest is written in
// rounds of one step for each event.
func (j *Journal) putSteps(w *writer, all []*step) error {
	var steps []*step
	var chunks [][]any
	for _, st := range all {
		if st.err = nil; st.Kind == spool.Chunk {
			chunks = append(chunks, []any{st.ID, st.N, st.I, db.NonNil(st.Data)})
		} else {
			steps = append(steps, st)
		}
	}
	if err := w.Run(insertChunks, chunks); err != nil {
		return err
	}
	claims := claimsOf(steps)
	known, err := w.chooseCandidates(j, claims) // known holds the ids of the events to lock
	if err != nil {
		return err
	}
	list := groupByEvent(steps)
	if err := j.insertNewEvents(w, list); err != nil {
		return err
	}
	next := make([]int, len(list))
	for i, u := range list {
		if u.insert != nil {
			next[i] = u.insert.merged
		}
		if next[i] < len(u.steps) && u.steps[0].Kind != claimStep {
			known = append(known, u.id)
		}
	}
	if err := events.LockEvents(w.Batch.Tx, known); err != nil {
		return err
	}
	for {
		var round []*step
		for i, u := range list {
			if next[i] < len(u.steps) {
				round = append(round, u.steps[next[i]])
				next[i]++
			}
		}
		if len(round) == 0 {
			return w.claimCandidates(claims)
		}
		if err := j.writeRound(w, round); err != nil {
			return err
		}
	}
}

// writer writes steps of the journal within one transaction.
type writer struct {
	*db.Batch
	target     *writeTarget
	usageDelta map[int64]int64 // bytes that the transaction adds to each alias
	elsewhere  map[int64]bool  // set by readTunnels
}

// inBatch runs one transaction of the journal and returns the changes to publish after it.
func (j *Journal) inBatch(ctx context.Context, by *writeTarget, fn func(*writer) error) ([]relay.Change, error) {
	w := &writer{target: by}
	changes, err := j.db.Batch(ctx, by.db, func(b *db.Batch) error {
		w.Batch = b
		return fn(w)
	})
	if err == nil {
		j.countStored(w)
	}
	return changes, err
}

// countStored reports the bytes that a transaction stored for each alias.
func (j *Journal) countStored(w *writer) {
	for alias, bytes := range w.usageDelta {
		j.opt.Stored(alias, bytes)
	}
}

// addUsage counts bytes that the transaction adds to the storage of an alias.
func (w *writer) addUsage(alias, bytes int64) {
	if w.usageDelta == nil {
		w.usageDelta = map[int64]int64{}
	}
	w.usageDelta[alias] += bytes
}

// newEventsOf returns those new events of a batch whose body parts are all stored, and the rows to insert.
// For other new events it sets the errors of their steps.
func (w *writer) newEventsOf(list []*eventSteps) (rows newRows, whole []*newEvent, err error) {
	for _, u := range list {
		if err := u.merge(); err != nil {
			return rows, nil, err
		}
		f := u.insert
		if f == nil {
			continue
		}
		stored, err := w.partsStored(f.event.ID, 0, f.request.Body.Parts)
		if a := f.attempt; stored && err == nil && a != nil {
			stored, err = w.partsStored(f.event.ID, a.N, a.Response.Body.Parts)
		}
		if err != nil {
			return rows, nil, err
		}
		if !stored {
			for _, st := range u.steps {
				st.err = events.ErrPartsLost
			}
			f.merged = len(u.steps)
			continue
		}
		if err := rows.add(w.target, f); err != nil {
			return rows, nil, err
		}
		whole = append(whole, f)
	}
	return rows, whole, nil
}

// insertNewEvents inserts the new events of a batch. Events that are stored already stay unchanged.
func (j *Journal) insertNewEvents(w *writer, list []*eventSteps) error {
	rows, inserted, err := w.newEventsOf(list)
	if err != nil {
		return err
	}
	there, err := w.Insert(insertWhole, rows.events, rows.attempts, rows.payloads)
	if err != nil {
		return err
	}
	if err := w.readTunnels(inserted, list); err != nil {
		return err
	}
	var queue [][]any
	rare := make([][][]any, len(events.RareColumns))
	for _, f := range inserted {
		if there[f.event.ID] {
			f.merged = 1 // the Accept is stored already; the other steps may not be
			if !w.target.replaying {
				w.addUsage(f.event.AliasID, events.StoredSize(f.request, f.event.ForwardedLines))
				w.Publish(f.changes(nil)...) // without a snapshot, because the event may have changed since it was stored
			}
			continue
		}
		w.addUsage(f.event.AliasID, events.StoredSize(f.request, f.event.ForwardedLines))
		for i, column := range events.RareColumns {
			if values := column.Values(f.event, f.attempt); values != nil {
				rare[i] = append(rare[i], values)
			}
		}
		j.opt.Judged(f.event.Signature, f.event.ReceivedAt)
		asIs := true
		if a := f.attempt; a != nil {
			w.addUsage(f.event.AliasID, events.AttemptStoredSize(a))
			asIs = !a.Released || w.elsewhere[f.event.AliasID]
			if a.State == relay.StateQueued {
				queue = append(queue, []any{ // in the order of queueColumns in package events
					f.event.ID, a.N, f.event.AliasID, db.Micros(a.ReceivedAt), events.KindCode(a), db.BoolToInt(a.Released && asIs), events.RequestBytes(f.request),
				})
			}
		}
		if asIs {
			w.Publish(f.changes(func() (*relay.Event, *relay.Attempt) { return f.snapshot(w.target.name) })...)
		} else {
			w.Publish(f.changes(nil)...)
		}
	}
	for i, column := range events.RareColumns {
		if err := w.Run(column.Set, rare[i]); err != nil {
			return err
		}
	}
	return w.Run(events.InsertQueue, queue)
}

// readTunnels sets w.elsewhere to the aliases whose tunnel is at another node, of those whose attempts were released for
// such a tunnel and are put into the queue by this batch. Only then may they stay released; without a tunnel they wait.
// The query locks the rows of the tunnels, so that a process that ends one of these tunnels sees the attempts; see
// withholdSince in package cluster. It locks all of them at once, in the order of their aliases, and before the events
// are locked, as other transactions do.
func (w *writer) readTunnels(inserted []*newEvent, list []*eventSteps) error {
	w.elsewhere = nil
	aliases := map[int64]bool{}
	for _, f := range inserted {
		if a := f.attempt; a != nil && a.State == relay.StateQueued && a.Released {
			aliases[f.event.AliasID] = true
		}
	}
	var requeued []relay.ID
	for _, u := range list {
		if slices.ContainsFunc(u.steps, func(st *step) bool { return st.Kind == spool.Requeue }) {
			requeued = append(requeued, u.id)
		}
	}
	if len(requeued) > 0 {
		var of []int64
		if err := w.AllIn(&of, `SELECT DISTINCT alias_id FROM attempts WHERE event_id IN (?) AND released = 1 AND from_queue = 0`, requeued); err != nil {
			return err
		}
		for _, id := range of {
			aliases[id] = true
		}
	}
	if len(aliases) == 0 {
		return nil
	}
	var found []int64
	err := w.AllIn(&found, `SELECT alias_id FROM tunnels WHERE alias_id IN (?) AND node_id <> ? ORDER BY alias_id`+w.Dialect.ForShare(),
		slices.Sorted(maps.Keys(aliases)), w.target.node)
	w.elsewhere = make(map[int64]bool, len(found))
	for _, id := range found {
		w.elsewhere[id] = true
	}
	return err
}

// partsStored reports whether all parts of a body are stored.
func (w *writer) partsStored(id relay.ID, n, parts int) (bool, error) {
	if parts == 0 {
		return true, nil
	}
	var have int
	err := w.Get(&have, `SELECT COUNT(*) FROM body_chunks WHERE event_id = ? AND n = ?`, id, n)
	return have >= parts, err
}

// newRows are the rows of new events.
type newRows struct {
	events, attempts, payloads [][]any
	row                        events.NewRow // reused for each event
}

func (r *newRows) add(by *writeTarget, f *newEvent) error {
	e, a := f.event, f.attempt
	f.storeRow(&r.row)
	r.events = append(r.events, events.EventValues(&r.row))
	r.payloads = append(r.payloads, events.PayloadValues(e.ID, 0, f.request, e.ForwardedLines, nil))
	if a == nil {
		return nil
	}
	state, err := events.StateCode(a.State)
	if err != nil {
		return err
	}
	r.attempts = append(r.attempts, events.AttemptValues(e, a, state, by.node, events.RequestBytes(f.request)))
	if events.HasPayload(a) {
		r.payloads = append(r.payloads, events.ResponseValues(e.ID, a))
	}
	return nil
}

// changes returns the changes to publish about a new event. snapshot returns the event as of the end
// of the batch; nil = viewers have to read it.
func (f *newEvent) changes(snapshot func() (*relay.Event, *relay.Attempt)) []relay.Change {
	out := []relay.Change{{Kind: relay.ChangeEvent, Alias: f.event.AliasID, Event: f.event.ID, Snapshot: snapshot}}
	switch a := f.attempt; {
	case a == nil || a.State == relay.StateDelivering:
	case a.State == relay.StateQueued:
		out = append(out, relay.Change{Kind: relay.ChangeQueue, Alias: f.event.AliasID})
	default:
		out = append(out, relay.Change{Kind: relay.ChangeAttempt, Alias: f.event.AliasID, Event: f.event.ID, N: a.N, Snapshot: snapshot})
	}
	return out
}

// writeRound writes the steps of one round, at most one for each event.
func (j *Journal) writeRound(w *writer, round []*step) error {
	var finishes []*step
	for _, st := range round {
		var err error
		switch st.Kind {
		case spool.Finish:
			finishes = append(finishes, st)
		case spool.Amend:
			if err = w.amend(st); err == nil && st.err == nil && st.Event.Signature != nil {
				j.opt.Judged(st.Event.Signature, time.Now())
			}
		case spool.Requeue:
			err = w.requeueAttempt(st)
		case claimStep: // claims are made after the rounds
		default:
			st.err = relay.Errorf(relay.CodeInternal, "the event %s was handed over twice", st.ID)
		}
		if err != nil {
			return err
		}
	}
	return w.finish(finishes)
}

// amend replaces the request of an event. If not all parts of the new request are stored, the request
// stays as it was accepted.
func (w *writer) amend(st *step) error {
	m := &st.Event.Request
	if ok, err := w.partsStored(st.ID, 0, m.Body.Parts); err != nil || !ok {
		st.err = events.ErrPartsLost
		return err
	}
	var alias []int64
	if err := w.All(&alias, `UPDATE events SET req_size = ?, blocker = CASE WHEN blocker IN ('', 'body') THEN ? ELSE blocker END
		WHERE id = ? RETURNING alias_id`, m.Body.Size, events.BodyBlocker(m.Body.State), st.ID); err != nil {
		return err
	}
	if len(alias) == 0 {
		st.err = relay.ErrNotFound
		return nil
	}
	var before []int64
	if err := w.All(&before, `SELECT `+events.PayloadBytes+` - COALESCE(LENGTH(extra), 0) FROM payloads WHERE event_id = ? AND n = 0`, st.ID); err != nil {
		return err
	}
	for _, n := range before {
		w.addUsage(alias[0], events.StoredSize(m)-n)
	}
	request := events.PayloadValues(st.ID, 0, m, nil, nil)[2:12] // the key, extra and interim do not change
	w.Do(`UPDATE payloads SET head = ?, lines = ?, framing = ?, codec = ?, body = ?, parts = ?, stored = ?, size = ?, sha256 = ?,
		state = ? WHERE event_id = ? AND n = 0`, append(request, st.ID)...)
	for _, column := range events.RareColumns {
		if values := column.Values(st.Event, nil); values != nil {
			if err := w.Run(column.Set, [][]any{values}); err != nil {
				return err
			}
		}
	}
	w.Publish(relay.Change{Kind: relay.ChangeEvent, Alias: alias[0], Event: st.ID})
	return nil
}

// requeueAttemptSQL also queues an attempt that a sweep has marked interrupted, because the caller was told
// that the event is queued.
const requeueAttemptSQL = `UPDATE attempts SET state = 0, started_at = 0, ended_at = 0, error_code = '', error_message = '', claim_node = ''
	WHERE event_id = ? AND n = ? AND (state = 1 OR ` + sweptLive + `) AND claim_node IN (?)
	RETURNING event_id, n, alias_id, from_queue, released`

// requeueAttempt puts an attempt that the node of the step is delivering back into the queue.
func (w *writer) requeueAttempt(st *step) error {
	var rows []events.AttemptRow
	if err := w.AllIn(&rows, requeueAttemptSQL, st.ID, st.N, w.target.claimants()); err != nil {
		return err
	}
	if len(rows) == 0 {
		if err := w.All(&rows, `SELECT alias_id, state FROM attempts WHERE event_id = ? AND n = ?`, st.ID, st.N); err != nil {
			return err
		}
		switch {
		case len(rows) == 0:
			st.err = relay.ErrNotFound
			return nil
		case rows[0].State != events.Queued:
			st.err = relay.ErrFenced
			return nil
		}
		// The attempt is queued: this step was committed before, but the result was lost and never
		// published. It is published now.
	}
	w.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: rows[0].AliasID, Event: st.ID, N: st.N},
		relay.Change{Kind: relay.ChangeQueue, Alias: rows[0].AliasID})
	withhold := st.State == withheldState
	if r := rows[0]; !withhold && r.Released != 0 && r.FromQueue == 0 {
		// The attempt was released for a tunnel at another node, which may have ended since then.
		withhold = !w.elsewhere[r.AliasID]
	}
	if withhold {
		w.Do(`UPDATE attempts SET released = 0 WHERE event_id = ? AND n = ?`, st.ID, st.N)
	}
	events.EnqueueAttempt(w.Batch.Tx, st.ID, st.N)
	w.Do(`UPDATE events SET state = 0, error_code = '', error_message = '' WHERE id = ? AND attempts = ? AND state NOT IN (6, 7)`, st.ID, st.N)
	if st.N != 1 {
		return nil
	}
	// If a replay of the event has been delivered by now, it supersedes the attempt that is queued again.
	delivered, err := w.Exists(`SELECT 1 FROM attempts WHERE event_id = ? AND kind = 1 AND state = 2 LIMIT 1`, st.ID)
	if err != nil || !delivered {
		return err
	}
	return supersede(w.Batch.Tx, st.ID, rows[0].AliasID)
}
