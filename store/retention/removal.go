package retention

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/people"
	"relay/store/usage"
)

// Bounds of one transaction that deletes rows. On SQLite such a transaction holds the only writer, and
// the callers of every alias wait for it. The number of rows is therefore adapted to the duration of
// the previous transactions.
const (
	removalMaxRows      = 200                  // rows in one transaction; every rowPerBytes bytes of a body count as one more row
	removalMinRows      = 32                   // with fewer rows, a transaction on a busy machine is not shorter
	removalTarget       = 2 * time.Millisecond // wanted duration of a transaction on SQLite
	removalInitialRows  = 60
	removalRowsPostgres = 1000 // rows in one transaction on Postgres, where other writers do not wait
	rowPerBytes         = 16 << 10
	rowsPerPart         = relay.BodyPart / rowPerBytes
)

// pace keeps deletes short. It runs one transaction at a time and then pauses for as long as the transaction
// took. The number of rows depends on the duration of the previous transactions.
type pace struct {
	turn   chan struct{} // holds a token while a transaction runs
	budget int           // number of rows of the next transaction; 0 = no transaction has run
}

// pacedUpdate runs one transaction of deletes; fn gets the number of rows that it may
// delete. Afterwards it checkpoints a long write-ahead log and then pauses for as long as
// the transaction took, so that the journal gets at least half of the writer's time.
func (r *Retention) pacedUpdate(ctx context.Context, what string, fn func(c *db.Tx, budget int) error) error {
	took, err := r.removalTx(ctx, what, fn)
	if err != nil {
		return err
	}
	return r.afterRemoval(ctx, took)
}

// afterRemoval shortens the write-ahead log after a transaction of pacedUpdate, and then pauses for the
// duration took. If ctx has ended, it returns the error of ctx, although the transaction is committed.
func (r *Retention) afterRemoval(ctx context.Context, took time.Duration) error {
	r.db.CheckpointLong(ctx)
	return db.Pause(ctx, took)
}

// removalTx is pacedUpdate without the checkpoint and the pause. It returns how long the writer was held.
func (r *Retention) removalTx(ctx context.Context, what string, fn func(c *db.Tx, budget int) error) (took time.Duration, err error) {
	p := &r.pace
	select { // the wait ends with ctx, because the transaction of another goroutine may take long: it may wait for other nodes
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-p.turn }()
	if p.budget == 0 {
		p.budget = removalInitialRows
	}
	budget, begin := p.budget, r.db.BeginRelaxedSync
	if r.db.Dialect.SeveralNodes() {
		budget, begin = removalRowsPostgres, r.db.Begin
	}
	var began time.Time
	err = r.db.UpdateBy(ctx, what, begin, func(c *db.Tx) error {
		began = time.Now() // the writer is held from here to the end of the commit
		return fn(c, budget)
	})
	if began.IsZero() {
		return 0, err
	}
	took = time.Since(began)
	r.counts.Longest.Store(max(r.counts.Longest.Load(), int64(took)))
	switch { // adapts the budget of the next transaction
	case took > 2*removalTarget:
		p.budget = max(removalMinRows, p.budget/3)
	case took > removalTarget:
		p.budget = max(removalMinRows, p.budget*3/4)
	case took < removalTarget/2:
		p.budget = min(removalMaxRows, p.budget+p.budget/4+1)
	}
	return took, err
}

// bytesLeft returns, in each transaction of a removal, the number of bytes that the removal still has to free.
// A nil function means that the removal has no such limit: it removes all removable events.
type bytesLeft func(*db.Tx) (int64, error)

// removeOldest removes the oldest removable events of an alias or an account whose ids are below the id before.
// It stops when enough bytes are freed, or when no such event is left. It returns the number of removed events,
// even with an error, and adds that number to count if count is not nil.
func (r *Retention) removeOldest(ctx context.Context, of usage.Holder, before relay.ID, now time.Time, left bytesLeft, count *atomic.Int64) (events int, err error) {
	in := removalRange{before: before, now: now}
	for more := true; more; {
		list, err := r.removalCandidates(ctx, of, in)
		if err != nil || len(list) == 0 {
			return events, err
		}
		in.after = list[len(list)-1].ID // the next list begins after these events: some may stay, because they were pinned, shared or queued since they were listed
		n, bytes := 0, int64(0)
		n, bytes, more, err = r.remove(ctx, of, list, now, left)
		events += n
		if count != nil {
			count.Add(int64(n))
			r.counts.Bytes.Add(bytes)
		}
		if err != nil {
			return events, err
		}
	}
	return events, nil
}

// fitting returns the number n of events, from the start of the list, that one transaction deletes: no more than
// needed to free the given number of bytes, and no more than the budget of rows allows, but at least one. heavy
// means that the first event alone exceeds the budget.
func fitting(list []removalCandidate, budget int, bytes int64) (n int, heavy bool) {
	rows := list[0].cost()
	bytes -= list[0].Bytes
	for n = 1; n < len(list) && bytes > 0 && rows+list[n].cost() <= budget; n++ {
		rows += list[n].cost()
		bytes -= list[n].Bytes
	}
	return n, rows > budget
}

// remove deletes the events of a list that are still removable, in short transactions, and returns their
// number and bytes. more is true if the list ended before enough bytes were freed. If a crash or the end of
// ctx interrupts remove, bodies without an event may remain, which SweepOrphans deletes.
func (r *Retention) remove(ctx context.Context, of usage.Holder, list []removalCandidate, now time.Time, left bytesLeft) (events int, freed int64, more bool, err error) {
	for len(list) > 0 {
		var gone []removalCandidate
		some, heavy, enough := 0, false, false
		took, err := r.removalTx(ctx, "remove events", func(c *db.Tx, budget int) (err error) {
			target := int64(math.MaxInt64)
			if left != nil {
				if target, err = left(c); err != nil {
					return err
				}
			}
			if enough = target <= 0; enough {
				return nil
			}
			some, heavy = fitting(list, budget, target)
			gone, err = removeEvents(c, of, list[:some], now, heavy)
			return err
		})
		if err != nil || enough {
			return events, freed, false, err
		}
		bytes := int64(0)
		var ids, parted []relay.ID
		for _, d := range gone {
			bytes += d.Bytes
			ids = append(ids, d.ID)
			if d.Parts > 0 {
				parted = append(parted, d.ID)
			}
		}
		list, events, freed = list[some:], events+len(gone), freed+bytes
		if err = r.afterRemoval(ctx, took); err != nil { // ctx has ended
			return events, freed, false, err
		}
		if heavy {
			err = r.removeOrphanRows(ctx, orphanPayloads, ids)
		}
		if err = cmp.Or(err, r.removeOrphanRows(ctx, orphanParts, parted)); err != nil {
			return events, freed, false, err
		}
	}
	return events, freed, true, nil
}

// removeEvents deletes the rows of the events that are still removable and, unless heavy is set, their
// payloads, which are then too many for one transaction and left to the caller. It returns the deleted events
// with their current sizes, because a replay may have added bytes since they were listed.
func removeEvents(c *db.Tx, of usage.Holder, list []removalCandidate, now time.Time, heavy bool) (gone []removalCandidate, err error) {
	ids := make([]relay.ID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	// Skip rows that a concurrent replay or share has locked. A replay or share that comes later does not
	// find the event.
	if c.Dialect.SeveralNodes() {
		var locked []relay.ID
		if err := c.AllIn(&locked, `SELECT id FROM events WHERE id IN (?) ORDER BY id`+c.Dialect.SkipLocked(), ids); err != nil || len(locked) == 0 {
			return nil, err
		}
		ids = locked
	}
	where, args := removable(now)
	owned := `e.alias_id = ?`
	if of.Account { // an alias may have been transferred since the events were listed
		owned = `e.alias_id IN (SELECT id FROM aliases WHERE owner_id = ?)`
	}
	var deleted []relay.ID
	if err := c.AllIn(&deleted, `DELETE FROM events AS e WHERE `+owned+` AND e.id IN (?) AND `+where+` RETURNING id`,
		append([]any{of.ID, ids}, args...)...); err != nil || len(deleted) == 0 {
		return nil, err
	}
	gone = slices.DeleteFunc(slices.Clone(list), func(d removalCandidate) bool { return !slices.Contains(deleted, d.ID) })
	if err := loadSizes(c.Query, gone); err != nil {
		return nil, err
	}
	for _, d := range gone {
		c.NoteFreed(d.Alias, d.Bytes)
	}
	tables := []string{`attempts`, `queue`, `shares`, `event_marks`, `payloads`}
	if heavy {
		tables = tables[:len(tables)-1]
	}
	for _, table := range tables {
		if _, err := c.ExecIn(`DELETE FROM `+table+` WHERE event_id IN (?)`, deleted); err != nil {
			return nil, err
		}
	}
	return gone, nil
}

// DeleteEvent removes an event with its attempts, bytes and shares, for the owner of its
// alias. It returns conflict while an attempt is being delivered; queued attempts are
// deleted too. The event is invisible at once; many or large bodies are deleted in further
// short transactions before DeleteEvent returns.
func (r *Retention) DeleteEvent(ctx context.Context, who relay.Actor, id relay.ID) error {
	if err := people.Allow(who, relay.ScopeEventsWrite); err != nil {
		return err
	}
	if err := r.spool.CaughtUp(); err != nil {
		return err // otherwise a step in the spool could store this event again
	}
	list, heavy := make([]removalCandidate, 1), false
	var e relay.Event
	err := r.db.Update(ctx, "delete event", func(c *db.Tx) (err error) {
		if e, err = events.OwnEventForUpdate(c, who, id); err != nil { // with this lock, no replay of the event can begin
			return err
		}
		var states []int
		if err := c.All(&states, `SELECT state FROM attempts WHERE event_id = ?`+c.Dialect.ForUpdate(), id); err != nil {
			return err
		}
		if slices.Contains(states, events.Delivering) {
			return relay.Errorf(relay.CodeConflict, "the event is being delivered; delete it when that has ended")
		}
		list[0] = removalCandidate{ID: id, Alias: e.AliasID, Attempts: e.AttemptCount}
		if err := loadSizes(c.Query, list); err != nil {
			return err
		}
		heavy = list[0].cost() > removalMaxRows
		if _, err := removeEvents(c, usage.Holder{ID: e.AliasID}, list, time.Time{}, heavy); err != nil {
			return err
		}
		c.Publish(relay.Change{Kind: relay.ChangeEvent, Alias: e.AliasID, Event: id})
		if slices.Contains(states, events.Queued) {
			c.Publish(relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID})
		}
		return people.AuditOfAlias(c, who, e.AliasID, "event.remove", id.String(), "of "+e.Alias)
	})
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if heavy {
		err = r.removeOrphanRows(ctx, orphanPayloads, []relay.ID{id})
	}
	if err == nil && list[0].Parts > 0 {
		err = r.removeOrphanRows(ctx, orphanParts, []relay.ID{id})
	}
	if err != nil {
		r.log.Warn("some bytes of a removed event are still stored; a later sweep of orphans deletes them", "event", id.String(), "err", err)
	}
	return nil
}

// orphanTable is a table that can hold bytes of deleted events.
type orphanTable struct{ name, key string }

var (
	orphanPayloads = orphanTable{`payloads`, `event_id, n`}
	orphanParts    = orphanTable{`body_chunks`, `event_id, n, i`}
)

// removeOrphanRows deletes the remaining rows of deleted events from a table.
func (r *Retention) removeOrphanRows(ctx context.Context, table orphanTable, ids []relay.ID) error {
	for some := range slices.Chunk(ids, removalMaxRows) {
		for more := true; more; {
			err := r.pacedUpdate(ctx, "remove bodies", func(c *db.Tx, budget int) error {
				limit := max(1, budget/rowsPerPart)
				n, err := c.ExecIn(fmt.Sprintf(`DELETE FROM %[1]s WHERE (%[2]s) IN (SELECT %[2]s FROM %[1]s WHERE event_id IN (?) LIMIT ?)`,
					table.name, table.key), some, limit)
				more = n == int64(limit)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
