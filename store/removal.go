package store

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"relay"
)

// Bounds of one transaction that deletes. On SQLite it holds the only writer, so
// callers of every alias wait for it: how much it takes on follows from how long the
// last ones took.
const (
	removalRows  = 200                  // most rows in one, bodies weighed as rows
	removalFew   = 32                   // on a busy machine a transaction takes its time however few they are
	removalAim   = 2 * time.Millisecond // its length on SQLite
	removalFirst = 60
	removalBulk  = 1000 // rows on Postgres, where nobody waits for it
	rowPerBytes  = 16 << 10
	rowsPerPart  = relay.BodyPart / rowPerBytes
)

// remover paces deletes: one transaction at a time, as large as keeps it short, and
// a pause behind it.
type remover struct {
	mu      sync.Mutex
	budget  int          // rows of the next transaction; 0 = none ran yet
	longest atomic.Int64 // ns
}

// brief runs one transaction of deletes within the budget it is given. It waits its
// turn, and as long as the transaction took behind it, so that the journal has half
// of the writer at least. Meanwhile a log that grew long is moved into the file.
func (s *Store) brief(ctx context.Context, what string, fn func(c *change, budget int) error) error {
	took, err := s.oneRemoval(ctx, what, fn)
	if err != nil {
		return err
	}
	s.moveLog(ctx, logState.long)
	return pause(ctx, took)
}

// oneRemoval is brief without the pause; it says how long the writer was held.
func (s *Store) oneRemoval(ctx context.Context, what string, fn func(c *change, budget int) error) (took time.Duration, err error) {
	r := &s.remover
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.budget == 0 {
		r.budget = removalFirst
	}
	budget, begin := r.budget, s.beginLazy
	if s.d.bulk {
		budget, begin = removalBulk, s.begin
	}
	var began time.Time
	err = s.updateBy(ctx, what, begin, func(c *change) error {
		began = time.Now() // the writer is ours from here to the end of the commit
		return fn(c, budget)
	})
	if !began.IsZero() {
		took = time.Since(began)
		r.note(took)
	}
	return took, err
}

// What the writer does at a commit: wait for the disk, and carry a long log into the
// file; or, for a removal, neither.
const (
	commitLazily = `PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0`
	commitFirmly = `PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = %d`
)

// beginLazy begins a transaction on SQLite whose commit waits for nothing, which could
// take longer than all the rest of it: after a power loss what it deleted may be there
// again, and goes again. The next commit of the journal waits for both.
func (s *Store) beginLazy(ctx context.Context) (*sqlx.Tx, func(), error) {
	conn, err := s.write.Connx(ctx)
	if err != nil {
		return nil, nil, err
	}
	end := func() {
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf(commitFirmly, moveAtLast)); err != nil {
			s.log.Error("the writer is opened again, to have it wait for the disk", "err", err)
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // drops it
		}
		_ = conn.Close() // back to the pool
	}
	if _, err := conn.ExecContext(ctx, commitLazily); err != nil {
		end()
		return nil, nil, err
	}
	tx, err := conn.BeginTxx(ctx, nil)
	if err != nil {
		end()
		return nil, nil, err
	}
	return tx, end, nil
}

// note sets the budget by how long a transaction took.
func (r *remover) note(took time.Duration) {
	r.longest.Store(max(r.longest.Load(), int64(took)))
	switch {
	case took > 2*removalAim:
		r.budget = max(removalFew, r.budget/3)
	case took > removalAim:
		r.budget = max(removalFew, r.budget*3/4)
	case took < removalAim/2:
		r.budget = min(removalRows, r.budget+r.budget/4+1)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keepRow is what each row of payloads counts in the storage of an alias beside its
// bytes; payloadBytes is both.
const (
	keepRow      = 512
	payloadBytes = `(512 + stored + COALESCE(LENGTH(head), 0) + COALESCE(LENGTH(lines), 0) + COALESCE(LENGTH(extra), 0) + COALESCE(LENGTH(interim), 0))`
)

// doomed is an event to remove and what it weighs.
type doomed struct {
	ID       relay.ID `db:"id"`
	Attempts int      `db:"attempts"`
	Payloads int      `db:"payloads"`
	Bytes    int64    `db:"bytes"`  // in the storage of its alias
	Inline   int64    `db:"inline"` // of them in payloads
	Parts    int      `db:"parts"`
}

// rows is what deleting the event costs, without the parts of its bodies.
func (d *doomed) rows() int {
	return 1 + d.Attempts + d.Payloads + int(d.Inline/rowPerBytes)
}

// held is true for events that stay whatever their age: an attempt waits or is under
// way, or somebody may use a share. Its parameter is the present time. The states stand
// apart because each has an index of its own: Postgres would read all attempts for both.
const held = `(e.state IN (0, 1) OR EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id AND a.state = 0)
	OR EXISTS (SELECT 1 FROM attempts a WHERE a.event_id = e.id AND a.state = 1)
	OR EXISTS (SELECT 1 FROM shares sh WHERE sh.event_id = e.id AND (sh.expires_at = 0 OR sh.expires_at > ?)))`

// oldest gives the next events of an alias, behind after and before the id given,
// that need not stay.
func (s *Store) oldest(ctx context.Context, alias int64, after, before relay.ID, now time.Time) (list []doomed, err error) {
	err = s.view(ctx, "look for events to remove", func(q session) error {
		if err := q.all(&list, `SELECT e.id, e.attempts FROM events e WHERE e.alias_id = ? AND e.id > ? AND e.id < ? AND NOT `+held+`
			ORDER BY e.id LIMIT ?`, alias, after, before, micros(now), removalRows); err != nil || len(list) == 0 {
			return err
		}
		return q.weigh(list)
	})
	return list, err
}

// weigh fills in what the payloads of events weigh.
func (q session) weigh(list []doomed) error {
	byID := make(map[relay.ID]*doomed, len(list))
	ids := make([]any, len(list))
	for i := range list {
		byID[list[i].ID], ids[i] = &list[i], list[i].ID
	}
	query, args, err := sqlx.In(`SELECT event_id AS id, COUNT(*) AS payloads, CAST(SUM(`+payloadBytes+`) AS BIGINT) AS bytes,
		CAST(SUM(CASE WHEN parts = 0 THEN stored ELSE 0 END) AS BIGINT) AS inline, SUM(parts) AS parts
		FROM payloads WHERE event_id IN (?) GROUP BY event_id`, ids)
	if err != nil {
		return err
	}
	var weights []doomed
	if err := q.all(&weights, query, args...); err != nil {
		return err
	}
	for _, w := range weights {
		if d := byID[w.ID]; d != nil {
			w.Attempts = d.Attempts
			*d = w
		}
	}
	return nil
}

// removed is what a removal came to.
type removed struct {
	events int
	bytes  int64
}

// remove deletes events of one alias in short transactions; unless all is set, those
// stay that became held meanwhile. What a crash leaves of their bodies is an orphan
// then, and swept.
func (s *Store) remove(ctx context.Context, alias int64, list []doomed, now time.Time, all bool) (done removed, err error) {
	for len(list) > 0 && err == nil {
		var some removed
		var took int
		took, some, err = s.removeSome(ctx, alias, list, now, all)
		list = list[took:]
		done.events, done.bytes = done.events+some.events, done.bytes+some.bytes
	}
	return done, err
}

// removeSome deletes the first events of a list, as many as one transaction takes,
// then what is left of large ones. It says how many it looked at.
func (s *Store) removeSome(ctx context.Context, alias int64, list []doomed, now time.Time, all bool) (took int, done removed, err error) {
	var gone []relay.ID
	heavy := false
	err = s.brief(ctx, "remove events", func(c *change, budget int) (err error) {
		rows := list[0].rows()
		for took = 1; took < len(list) && rows+list[took].rows() <= budget; took++ {
			rows += list[took].rows()
		}
		heavy = rows > budget
		gone, err = c.removeEvents(alias, list[:took], now, all, heavy)
		return err
	})
	if err != nil {
		return took, done, err
	}
	lookup := make(map[relay.ID]bool, len(gone))
	for _, id := range gone {
		lookup[id] = true
	}
	var parted []relay.ID
	for _, d := range list[:took] {
		if lookup[d.ID] {
			done.events++
			done.bytes += d.Bytes
			if d.Parts > 0 {
				parted = append(parted, d.ID)
			}
		}
	}
	s.stock.add(alias, -done.bytes)
	if heavy {
		err = s.removeRest(ctx, leftPayloads, gone)
	}
	if err == nil {
		err = s.removeRest(ctx, leftParts, parted)
	}
	return took, done, err
}

// removeEvents deletes the rows of events, and unless they are too many their
// payloads. It gives the ids of those that went.
func (c *change) removeEvents(alias int64, list []doomed, now time.Time, all, heavy bool) (gone []relay.ID, err error) {
	ids := make([]any, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	if c.d.bulk { // whoever asks for a replay or a share meanwhile has the row first, or finds none
		query, args, err := sqlx.In(`SELECT id FROM events WHERE id IN (?) ORDER BY id`+c.d.skipLocked, ids)
		if err != nil {
			return nil, err
		}
		var locked []relay.ID
		if err := c.all(&locked, query, args...); err != nil || len(locked) == 0 {
			return nil, err
		}
		ids = values(locked)
	}
	where, args := ` AND NOT `+held, []any{alias, ids, micros(now)}
	if all {
		where, args = ``, args[:2]
	}
	query, args, err := sqlx.In(`DELETE FROM events AS e WHERE e.alias_id = ? AND e.id IN (?)`+where+` RETURNING id`, args...)
	if err != nil {
		return nil, err
	}
	if err := c.all(&gone, query, args...); err != nil || len(gone) == 0 {
		return gone, err
	}
	tables := []string{`attempts`, `shares`, `payloads`}
	if heavy {
		tables = tables[:2]
	}
	for _, table := range tables {
		query, args, err := sqlx.In(`DELETE FROM `+table+` WHERE event_id IN (?)`, values(gone))
		if err != nil {
			return nil, err
		}
		if _, err := c.exec(query, args...); err != nil {
			return nil, err
		}
	}
	return gone, nil
}

// leftover is a table with bytes of events that are gone.
type leftover struct {
	table, key string
	rows       int // that one of them counts for
}

var (
	leftPayloads = leftover{`payloads`, `event_id, n`, rowsPerPart}
	leftParts    = leftover{`body_chunks`, `event_id, n, i`, rowsPerPart}
)

// removeRest deletes what a table still holds of events that are gone.
func (s *Store) removeRest(ctx context.Context, l leftover, ids []relay.ID) error {
	for len(ids) > 0 {
		some := ids[:min(len(ids), removalRows)]
		ids = ids[len(some):]
		for more := true; more; {
			err := s.brief(ctx, "remove bodies", func(c *change, budget int) error {
				limit := max(1, budget/l.rows)
				query, args, err := sqlx.In(fmt.Sprintf(`DELETE FROM %[1]s WHERE (%[2]s) IN (SELECT %[2]s FROM %[1]s WHERE event_id IN (?) LIMIT ?)`,
					l.table, l.key), values(some), limit)
				if err != nil {
					return err
				}
				n, err := c.exec(query, args...)
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
