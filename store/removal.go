package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/people"
)

// Bounds of one transaction that deletes rows. On SQLite such a transaction holds the
// only writer, and the callers of every alias wait for it. The number of rows is therefore
// adapted to how long the previous transactions took.
const (
	removalMaxRows      = 200                  // most rows in one transaction; rowPerBytes of a body count as a row
	removalMinRows      = 32                   // fewer do not make a transaction shorter on a busy machine
	removalTarget       = 2 * time.Millisecond // length of a transaction on SQLite
	removalInitialRows  = 60
	removalRowsPostgres = 1000 // rows on Postgres, where other writers do not wait
	rowPerBytes         = 16 << 10
	rowsPerPart         = relay.BodyPart / rowPerBytes
)

// remover paces deletes: it runs one transaction at a time, keeps each one short, and
// pauses after it.
type remover struct {
	mu      sync.Mutex
	budget  int          // rows of the next transaction; 0 = no transaction has run
	longest atomic.Int64 // the longest transaction in ns
}

// pacedUpdate runs one transaction of deletes; fn gets the number of rows that it may
// delete. Afterwards it checkpoints a long write-ahead log and then pauses for as long as
// the transaction took, so that the journal gets at least half of the writer's time.
func (s *Store) pacedUpdate(ctx context.Context, what string, fn func(c *db.Tx, budget int) error) error {
	took, err := s.removalTx(ctx, what, fn)
	if err != nil {
		return err
	}
	return s.afterRemoval(ctx, took)
}

// afterRemoval is what pacedUpdate does after a transaction that took some time. It returns the
// error of ctx if that has ended: the transaction is committed then, too.
func (s *Store) afterRemoval(ctx context.Context, took time.Duration) error {
	s.db.CheckpointLong(ctx)
	return db.Pause(ctx, took)
}

// removalTx is pacedUpdate without the checkpoint and the pause. It returns how long the writer was held.
func (s *Store) removalTx(ctx context.Context, what string, fn func(c *db.Tx, budget int) error) (took time.Duration, err error) {
	r := &s.remover
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.budget == 0 {
		r.budget = removalInitialRows
	}
	budget, begin := r.budget, s.db.BeginRelaxedSync
	if s.db.Dialect.SeveralNodes() {
		budget, begin = removalRowsPostgres, s.db.Begin
	}
	var began time.Time
	err = s.db.UpdateBy(ctx, what, begin, func(c *db.Tx) error {
		began = time.Now() // this transaction holds the writer from here to the end of the commit
		return fn(c, budget)
	})
	if began.IsZero() {
		return 0, err
	}
	took = time.Since(began)
	r.longest.Store(max(r.longest.Load(), int64(took)))
	switch { // the budget of the next transaction
	case took > 2*removalTarget:
		r.budget = max(removalMinRows, r.budget/3)
	case took > removalTarget:
		r.budget = max(removalMinRows, r.budget*3/4)
	case took < removalTarget/2:
		r.budget = min(removalMaxRows, r.budget+r.budget/4+1)
	}
	return took, err
}

// removalCandidate is an event that may be removed, with its size.
type removalCandidate struct {
	ID       relay.ID `db:"id"`
	Alias    int64    `db:"alias_id"`
	Attempts int      `db:"attempts"`
	Payloads int      `db:"payloads"`
	Bytes    int64    `db:"bytes"`  // as counted in the storage of its alias
	Inline   int64    `db:"inline"` // of these, the bytes of bodies in payloads
	Parts    int      `db:"parts"`
}

// cost is the number of rows that deleting the event counts as, without the parts of its
// bodies.
func (d *removalCandidate) cost() int {
	return 1 + d.Attempts + d.Payloads + int(d.Inline/rowPerBytes)
}

// heldEvents is a condition that is true for events that retention must keep: an attempt is
// queued or being delivered, a person pinned it, or a share can still be used. Its parameter is the current
// time.
const heldEvents = `(e.state IN (0, 1) OR EXISTS (SELECT 1 FROM queue w WHERE w.event_id = e.id)
	OR EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id AND a.state = 1)
	OR EXISTS (SELECT 1 FROM event_marks em WHERE em.event_id = e.id AND em.pinned = 1)
	OR EXISTS (SELECT 1 FROM shares sh WHERE sh.event_id = e.id AND (sh.expires_at = 0 OR sh.expires_at > ?)))`

// removable is a condition that is true for events that need not be kept at the time now: for
// all events if that is zero.
func removable(now time.Time) (string, []any) {
	if now.IsZero() {
		return `1 = 1`, nil
	}
	return `NOT ` + heldEvents, []any{db.Micros(now)}
}

// removalRange says which events may be removed: those with ids between after and before, both
// exclusive, that are removable at the time now.
type removalRange struct {
	after, before relay.ID
	now           time.Time
}

// removalCandidates returns the oldest events of an alias, or of all aliases of an account, in a range.
func (s *Store) removalCandidates(ctx context.Context, of holder, r removalRange) (list []removalCandidate, err error) {
	if of.account {
		return s.accountCandidates(ctx, of.id, r)
	}
	err = s.db.View(ctx, "look for events to remove", func(q db.Query) error {
		if list, err = candidatesOf(q, of.id, r, removalMaxRows); err != nil || len(list) == 0 {
			return err
		}
		return loadSizes(q, list)
	})
	return list, err
}

// candidatesOf returns the oldest events of an alias in a range, without their sizes.
func candidatesOf(q db.Query, alias int64, r removalRange, limit int) (list []removalCandidate, err error) {
	where, args := removable(r.now)
	err = q.All(&list, `SELECT e.id, e.alias_id, e.attempts FROM events e WHERE e.alias_id = ? AND e.id > ? AND e.id < ? AND `+where+`
		ORDER BY e.id LIMIT ?`, append(append([]any{alias, r.after, r.before}, args...), limit)...)
	return list, err
}

// loadSizes fills in the sizes of the payloads of events.
func loadSizes(q db.Query, list []removalCandidate) error {
	ids := make([]relay.ID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	var weights []removalCandidate
	if err := q.AllIn(&weights, `SELECT event_id AS id, COUNT(*) AS payloads, CAST(SUM(`+events.PayloadBytes+`) AS BIGINT) AS bytes,
		CAST(SUM(CASE WHEN parts = 0 THEN stored ELSE 0 END) AS BIGINT) AS inline, SUM(parts) AS parts
		FROM payloads WHERE event_id IN (?) GROUP BY event_id`, ids); err != nil {
		return err
	}
	for _, w := range weights {
		i := slices.Index(ids, w.ID)
		w.Attempts, w.Alias = list[i].Attempts, list[i].Alias
		list[i] = w
	}
	return nil
}

// bytesLeft says in each transaction of a removal how many bytes it is to free still; nil = all.
type bytesLeft func(*db.Tx) (int64, error)

// removeOldest removes the oldest removable events of an alias or an account with ids before the one given, until
// nothing is left to free, or no event. It returns how many it removed, also if it fails. Unless
// count is nil, retention removes them: their number is added to count.
func (s *Store) removeOldest(ctx context.Context, of holder, before relay.ID, now time.Time, left bytesLeft, count *atomic.Int64) (events int, err error) {
	r := removalRange{before: before, now: now}
	for more := true; more; {
		list, err := s.removalCandidates(ctx, of, r)
		if err != nil || len(list) == 0 {
			return events, err
		}
		r.after = list[len(list)-1].ID // some may stay, because they became held since
		n, bytes := 0, int64(0)
		n, bytes, more, err = s.remove(ctx, of, list, now, left)
		events += n
		if count != nil {
			count.Add(int64(n))
			s.retentionCounts.bytes.Add(bytes)
		}
		if err != nil {
			return events, err
		}
	}
	return events, nil
}

// fitting returns how many of the oldest events one transaction deletes: those that its budget of
// rows allows, one at least, and no more than free the bytes.
func fitting(list []removalCandidate, budget int, bytes int64) (n int, heavy bool) {
	rows := list[0].cost()
	bytes -= list[0].Bytes
	for n = 1; n < len(list) && bytes > 0 && rows+list[n].cost() <= budget; n++ {
		rows += list[n].cost()
		bytes -= list[n].Bytes
	}
	return n, rows > budget
}

// remove deletes those events of an alias or an account that are removable, in short transactions: some may
// have become held since they were listed. more is false when nothing was left to free. Bodies that a
// crash or the end of ctx leaves behind are orphans, which SweepOrphans deletes.
func (s *Store) remove(ctx context.Context, of holder, list []removalCandidate, now time.Time, left bytesLeft) (events int, freed int64, more bool, err error) {
	for len(list) > 0 {
		var gone []removalCandidate
		some, heavy, enough := 0, false, false
		took, err := s.removalTx(ctx, "remove events", func(c *db.Tx, budget int) (err error) {
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
		if err = s.afterRemoval(ctx, took); err != nil { // ctx has ended
			return events, freed, false, err
		}
		if heavy {
			err = s.removeOrphanRows(ctx, orphanPayloads, ids)
		}
		if err = cmp.Or(err, s.removeOrphanRows(ctx, orphanParts, parted)); err != nil {
			return events, freed, false, err
		}
	}
	return events, freed, true, nil
}

// removeEvents deletes the rows of those events that are removable and, unless heavy is set,
// their payloads. It returns the deleted events with their sizes of now: a replay may have added to
// them since they were listed.
func removeEvents(c *db.Tx, of holder, list []removalCandidate, now time.Time, heavy bool) (gone []removalCandidate, err error) {
	ids := make([]relay.ID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	if c.Dialect.SeveralNodes() { // a concurrent replay or share has locked the row already, or will not find it
		var locked []relay.ID
		if err := c.AllIn(&locked, `SELECT id FROM events WHERE id IN (?) ORDER BY id`+c.Dialect.SkipLocked(), ids); err != nil || len(locked) == 0 {
			return nil, err
		}
		ids = locked
	}
	where, args := removable(now)
	owned := `e.alias_id = ?`
	if of.account { // an alias may have been transferred since the events were listed
		owned = `e.alias_id IN (SELECT id FROM aliases WHERE owner_id = ?)`
	}
	var deleted []relay.ID
	if err := c.AllIn(&deleted, `DELETE FROM events AS e WHERE `+owned+` AND e.id IN (?) AND `+where+` RETURNING id`,
		append([]any{of.id, ids}, args...)...); err != nil || len(deleted) == 0 {
		return nil, err
	}
	gone = slices.DeleteFunc(slices.Clone(list), func(d removalCandidate) bool { return !slices.Contains(deleted, d.ID) })
	if err := loadSizes(c.Query, gone); err != nil {
		return nil, err
	}
	for _, d := range gone {
		noteFreed(c, d.Alias, d.Bytes)
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
func (s *Store) DeleteEvent(ctx context.Context, who relay.Actor, id relay.ID) error {
	if err := people.Allow(who, relay.ScopeEventsWrite); err != nil {
		return err
	}
	if err := s.spool.CaughtUp(); err != nil {
		return err // a step in the spool could store this event again
	}
	list, heavy := make([]removalCandidate, 1), false
	var e relay.Event
	err := s.db.Update(ctx, "delete event", func(c *db.Tx) (err error) {
		if e, err = events.OwnEventForUpdate(c, who, id); err != nil { // no replay begins from here on
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
		if _, err := removeEvents(c, holder{id: e.AliasID}, list, time.Time{}, heavy); err != nil {
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
		err = s.removeOrphanRows(ctx, orphanPayloads, []relay.ID{id})
	}
	if err == nil && list[0].Parts > 0 {
		err = s.removeOrphanRows(ctx, orphanParts, []relay.ID{id})
	}
	if err != nil {
		s.log.Warn("some bytes of a removed event are still stored; a later sweep of orphans deletes them", "event", id.String(), "err", err)
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
func (s *Store) removeOrphanRows(ctx context.Context, table orphanTable, ids []relay.ID) error {
	for some := range slices.Chunk(ids, removalMaxRows) {
		for more := true; more; {
			err := s.pacedUpdate(ctx, "remove bodies", func(c *db.Tx, budget int) error {
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

const (
	// orphanAge is the age of an event id from which on bytes without an event are orphans. The
	// parts of a body are stored before its event, and a body may take long to arrive; an event
	// whose parts are gone then is refused (ErrPartsLost).
	orphanAge     = 24 * time.Hour
	sweepInterval = 24 * time.Hour
	orphanPage    = 500
	// orphanAgeSpool is the age while a spool was stored in part, whose rest may be in a data dir
	// that nobody serves now. Its mark is removed when nobody has moved it for as long.
	orphanAgeSpool = 30 * 24 * time.Hour
)

// SweepOrphans deletes bodies that have no event although their id is a day old at the time
// now: the request broke off, the relay was killed, or a removal failed. It returns how many
// bodies it deleted. It deletes none while steps wait in a spool: the events of old bodies may be
// among them.
func (s *Store) SweepOrphans(ctx context.Context, now time.Time) (total int, err error) {
	for _, table := range []orphanTable{orphanParts, orphanPayloads} {
		for after := (relay.ID{}); ; {
			age, err := s.orphanAge(ctx) // of each page: a spool may begin to fill meanwhile
			if err != nil || age == 0 {
				return total, err
			}
			before := events.LowestID(now.Add(-age))
			page, orphans, err := s.orphansInPage(ctx, table.name, after, before)
			if err != nil {
				return total, err
			}
			if len(page) == 0 {
				break
			}
			after = page[len(page)-1]
			if err := s.removeOrphanRows(ctx, table, orphans); err != nil {
				return total, err
			}
			total += len(orphans)
		}
	}
	if total == 0 {
		return 0, nil
	}
	s.retentionCounts.orphans.Add(int64(total))
	s.log.Info("orphaned parts of bodies removed", "bodies", total)
	return total, s.vacuum(ctx)
}

// orphanAge is the age of an id from which on a body without an event is an orphan; 0 = none is now.
func (s *Store) orphanAge(ctx context.Context) (time.Duration, error) {
	waits, err := s.spoolWaits(ctx)
	if err != nil || waits {
		return 0, err
	}
	age := orphanAge
	err = s.db.View(ctx, "look for spools", func(q db.Query) error {
		partly, err := q.Exists(`SELECT 1 FROM spool_marks LIMIT 1`) // a spool that is stored in full leaves none
		if partly {
			age = orphanAgeSpool
		}
		return err
	})
	return age, err
}

// orphansInPage reads the next event ids of a table, and which of these events do not
// exist.
func (s *Store) orphansInPage(ctx context.Context, table string, after, before relay.ID) (page, orphans []relay.ID, err error) {
	err = s.db.View(ctx, "look for orphaned bodies", func(q db.Query) error {
		if err := q.All(&page, `SELECT event_id FROM `+table+` WHERE event_id > ? AND event_id < ?
			GROUP BY event_id ORDER BY event_id LIMIT ?`, after, before, orphanPage); err != nil || len(page) == 0 {
			return err
		}
		var there []relay.ID
		// With the bounds Postgres skips the partitions of other days.
		if err := q.AllIn(&there, `SELECT id FROM events WHERE id IN (?) AND id >= ? AND id <= ?`, page, page[0], page[len(page)-1]); err != nil {
			return err
		}
		orphans = slices.DeleteFunc(slices.Clone(page), func(id relay.ID) bool { return slices.Contains(there, id) })
		return nil
	})
	return page, orphans, err
}
