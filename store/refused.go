package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"relay"
	"relay/store/db"
)

const (
	maxRefusedPerAccount = 5         // kept of an account
	refusedLife          = time.Hour // since the last refusal
	maxRefusedWaiting    = 10_000    // waiting to be written
	refusedBatch         = 200       // bind addresses in one transaction
)

// refusedQueue holds refused forwards, and those that were allowed after all, until they are
// written; that happens each second. A bounded number waits, and what does not fit is lost:
// it is only shown on the dashboard. Safe for concurrent use.
type refusedQueue struct {
	mu      sync.Mutex
	waiting map[refusedKey]*refusedChange
}

type refusedKey struct {
	account int64
	bind    string
}

// refusedChange is what became of forwards to one bind address since the last write.
type refusedChange struct {
	allowed bool // what was refused before is to be deleted
	refused map[string]relay.RefusedForward
}

// change calls edit with the change that waits for a bind address.
func (l *refusedQueue) change(account int64, bind string, edit func(*refusedChange)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := refusedKey{account, bind}
	if l.waiting[key] == nil {
		if len(l.waiting) >= maxRefusedWaiting {
			return
		}
		if l.waiting == nil {
			l.waiting = map[refusedKey]*refusedChange{}
		}
		l.waiting[key] = &refusedChange{refused: map[string]relay.RefusedForward{}}
	}
	edit(l.waiting[key])
}

// NoteRefusedForward keeps that a remote forward was refused to an account, for the
// dashboard of every node. x.At and x.Times are set here. It does not block; the forward is
// written within seconds.
func (s *Store) NoteRefusedForward(account int64, x relay.RefusedForward) {
	x.At = s.db.Now()
	x.Bind, x.Message = db.StorableText(x.Bind), db.StorableText(x.Message)
	s.refusedQueue.change(account, x.Bind, func(c *refusedChange) {
		x.Times = c.refused[x.Code].Times + 1
		c.refused[x.Code] = x
	})
}

// NoteAllowedForward forgets the refused forwards of an account to a bind address, because
// one was allowed. It does not block.
func (s *Store) NoteAllowedForward(account int64, bind string) {
	s.refusedQueue.change(account, db.StorableText(bind), func(c *refusedChange) {
		c.allowed = true
		clear(c.refused)
	})
}

// RefusedForwards lists the forwards that were refused to an account at any node within the
// last hour, and not allowed since: the newest first, five at most.
func (s *Store) RefusedForwards(ctx context.Context, account int64) ([]relay.RefusedForward, error) {
	fields := func(x *relay.RefusedForward) []any {
		return []any{&x.Bind, &x.Code, &x.Message, (*db.AddrPort)(&x.Remote), &x.Times, (*db.Time)(&x.At)}
	}
	return db.ReadRows(ctx, s.db, "list refused forwards", fields, `SELECT bind, code, message, remote, times, refused_at FROM refused_forwards
		WHERE account_id = ? AND refused_at > ? ORDER BY refused_at DESC, bind, code LIMIT ?`, account, db.Micros(s.db.Now().Add(-refusedLife)), maxRefusedPerAccount)
}

// flushRefused writes the queue, best effort.
func (s *Store) flushRefused(ctx context.Context) {
	s.refusedQueue.mu.Lock()
	waiting := s.refusedQueue.waiting
	s.refusedQueue.waiting = nil
	s.refusedQueue.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	// Nearly every forward is allowed and was never refused. One read saves their writes.
	var accounts []int64
	if err := s.db.View(ctx, "list refused forwards", func(q db.Query) error {
		return q.All(&accounts, `SELECT DISTINCT account_id FROM refused_forwards`)
	}); err != nil {
		s.log.Warn("refused forwards cannot be written", "err", err)
		return
	}
	maps.DeleteFunc(waiting, func(k refusedKey, c *refusedChange) bool {
		return len(c.refused) == 0 && !slices.Contains(accounts, k.account)
	})
	// All nodes lock rows in one order.
	keys := slices.SortedFunc(maps.Keys(waiting), func(a, b refusedKey) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.bind, b.bind))
	})
	for batch := range slices.Chunk(keys, refusedBatch) {
		err := s.db.Update(ctx, "write refused forwards", func(c *db.Tx) error {
			for _, k := range batch {
				writeRefused(c, k, waiting[k])
			}
			return nil
		})
		if err != nil {
			s.log.Warn("refused forwards cannot be written", "err", err)
			return
		}
	}
}

func writeRefused(c *db.Tx, k refusedKey, change *refusedChange) {
	old := db.Micros(c.Now().Add(-refusedLife))
	if change.allowed {
		c.Do(`DELETE FROM refused_forwards WHERE account_id = ? AND bind = ?`, k.account, k.bind)
	}
	for _, code := range slices.Sorted(maps.Keys(change.refused)) {
		x := change.refused[code]
		c.Do(`INSERT INTO refused_forwards (account_id, bind, code, message, remote, times, refused_at) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (account_id, bind, code) DO UPDATE SET message = excluded.message, remote = excluded.remote, refused_at = excluded.refused_at,
			times = excluded.times + CASE WHEN refused_forwards.refused_at > ? THEN refused_forwards.times ELSE 0 END`,
			k.account, k.bind, code, x.Message, x.Remote.String(), x.Times, db.Micros(x.At), old)
	}
	if len(change.refused) > 0 {
		c.Do(`DELETE FROM refused_forwards WHERE account_id = ? AND (bind, code) NOT IN
			(SELECT bind, code FROM refused_forwards WHERE account_id = ? ORDER BY refused_at DESC, bind, code LIMIT ?)`, k.account, k.account, maxRefusedPerAccount)
	}
}
