package people

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"relay"
	"relay/store/db"
)

const (
	maxRefusedPerAccount = 5         // refusals kept for an account
	RefusedLife          = time.Hour // how long after its latest occurrence a refusal is shown
)

// refusedChange holds what is not written yet about the forwards to one bind address that an account
// requested: whether one was allowed, and the refusals after that.
type refusedChange struct {
	account int64
	bind    string
	allowed bool // a forward was allowed, so the stored refusals are deleted
	refused map[string]relay.RefusedForward
}

// changeRefused calls the function edit with the waiting change for a bind address. If too many changes wait,
// it drops the change, because nothing but the dashboard uses refusals.
func (s *Store) changeRefused(account int64, bind string, edit func(*refusedChange)) {
	s.late.put(lateKey{&lateRefused, fmt.Sprintf("%020d %s", account, bind)}, func(before lateWrite) lateWrite {
		change, waits := before.(*refusedChange)
		if !waits {
			change = &refusedChange{account: account, bind: bind, refused: map[string]relay.RefusedForward{}}
		}
		edit(change)
		return change
	})
}

// NoteRefusedForward stores that a remote forward was refused to an account, for the dashboard of every node.
// It sets the time and the number of refusals itself, and ignores those in x. It does not block; the entry is
// written within seconds.
func (s *Store) NoteRefusedForward(account int64, x relay.RefusedForward) {
	x.At = s.db.Now()
	x.Bind, x.Message = db.StorableText(x.Bind), db.StorableText(x.Message)
	s.changeRefused(account, x.Bind, func(c *refusedChange) {
		x.Times = c.refused[x.Code].Times + 1
		c.refused[x.Code] = x
	})
}

// NoteAllowedForward deletes the refused forwards of an account to a bind address, because one was
// allowed. It does not block.
func (s *Store) NoteAllowedForward(account int64, bind string) {
	s.changeRefused(account, db.StorableText(bind), func(c *refusedChange) {
		c.allowed = true
		clear(c.refused)
	})
}

// RefusedForwards lists the forwards that were refused to an account at any node within the last hour, unless
// a forward to the same bind address was allowed afterwards: the newest first, at most five.
func (s *Store) RefusedForwards(ctx context.Context, account int64) ([]relay.RefusedForward, error) {
	fields := func(x *relay.RefusedForward) []any {
		return []any{&x.Bind, &x.Code, &x.Message, (*db.AddrPort)(&x.Remote), &x.Times, (*db.Time)(&x.At)}
	}
	return db.ReadRows(ctx, s.db, "list refused forwards", fields, `SELECT bind, code, message, remote, times, refused_at FROM refused_forwards
		WHERE account_id = ? AND refused_at > ? ORDER BY refused_at DESC, bind, code LIMIT ?`, account, db.Micros(s.db.Now().Add(-RefusedLife)), maxRefusedPerAccount)
}

// follow merges an earlier change, which could not be written, into a later one.
func (change *refusedChange) follow(earlier *refusedChange) {
	if change.allowed {
		return
	}
	change.allowed = earlier.allowed
	for code, x := range earlier.refused {
		if newer, known := change.refused[code]; known {
			newer.Times += x.Times
			x = newer
		}
		change.refused[code] = x
	}
}

func (change *refusedChange) write(c *db.Tx) error {
	old := db.Micros(c.Now().Add(-RefusedLife))
	if change.allowed {
		c.Do(`DELETE FROM refused_forwards WHERE account_id = ? AND bind = ?`, change.account, change.bind)
	}
	for _, code := range slices.Sorted(maps.Keys(change.refused)) {
		x := change.refused[code]
		c.Do(`INSERT INTO refused_forwards (account_id, bind, code, message, remote, times, refused_at) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (account_id, bind, code) DO UPDATE SET message = excluded.message, remote = excluded.remote, refused_at = excluded.refused_at,
			times = excluded.times + CASE WHEN refused_forwards.refused_at > ? THEN refused_forwards.times ELSE 0 END`,
			change.account, change.bind, code, x.Message, x.Remote.String(), x.Times, db.Micros(x.At), old)
	}
	if len(change.refused) > 0 {
		c.Do(`DELETE FROM refused_forwards WHERE account_id = ? AND (bind, code) NOT IN
			(SELECT bind, code FROM refused_forwards WHERE account_id = ? ORDER BY refused_at DESC, bind, code LIMIT ?)`, change.account, change.account, maxRefusedPerAccount)
	}
	return c.Err
}
