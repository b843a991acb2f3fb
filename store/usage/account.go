package usage

import (
	"context"
	"maps"
	"sync/atomic"

	"relay"
	"relay/store/db"
	"relay/store/people"
)

// accountStorage holds the stored bytes of all aliases of each account, and the limits. It is a part of
// Usage, and guarded by the lock of Usage.
type accountStorage struct {
	limit   int64                  // limit of an account without its own; 0 = none
	own     map[int64]int64        // limits of the accounts that have their own; 0 = none
	owners  map[int64]int64        // owner of each alias; empty if no account has a limit
	stored  map[int64]*bytesStored // stored bytes by account, without accounts that store nothing; empty if no account has a limit
	changed atomic.Bool            // owners or limits may have changed since ReadLimits has read them
}

// note notes a change after which an alias may have another owner, or an account another limit.
func (a *accountStorage) note(kind relay.ChangeKind) {
	if kind == relay.ChangeAlias || kind == relay.ChangeAccount {
		a.changed.Store(true)
	}
}

func (a *accountStorage) limitOf(account int64) int64 {
	if own, has := a.own[account]; has {
		return own
	}
	return a.limit
}

// add adds bytes to the count of the owner of an alias.
func (a *accountStorage) add(alias, bytes int64) {
	owner := a.owners[alias]
	if owner == 0 {
		return
	}
	of := a.stored[owner]
	if of == nil {
		of = &bytesStored{}
		a.stored[owner] = of
	}
	of.add(bytes)
}

// OwnerOf returns the owner of an alias; 0 = unknown, or no account has a limit.
func (u *Usage) OwnerOf(alias int64) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.accounts.owners[alias]
}

// FullestAccount returns the highest used fraction of the storage limit among all accounts; 0 = none has
// a limit.
func (u *Usage) FullestAccount() (most float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, of := range u.accounts.stored {
		if limit := u.accounts.limitOf(id); limit > 0 {
			most = max(most, float64(of.bytes)/float64(limit))
		}
	}
	return most
}

// ReadLimits reads the owner of each alias and the limit of each account, if they may have changed
// since the last call. The stored bytes of an alias then count for its new owner.
func (u *Usage) ReadLimits(ctx context.Context) error {
	if !u.counts() || !u.accounts.changed.Swap(false) {
		return nil
	}
	type pair struct{ id, value int64 }
	fields := func(p *pair) []any { return []any{&p.id, &p.value} }
	own, owners := map[int64]int64{}, map[int64]int64{}
	err := u.db.View(ctx, "read limits of accounts", func(q db.Query) error {
		list, err := db.RowsOf(q, fields, `SELECT id, max_storage FROM accounts WHERE max_storage IS NOT NULL`)
		for _, p := range list {
			own[p.id] = p.value
		}
		if err != nil || u.accounts.limit <= 0 && len(own) == 0 {
			return err
		}
		list, err = db.RowsOf(q, fields, `SELECT id, owner_id FROM aliases`)
		for _, p := range list {
			owners[p.id] = p.value
		}
		return err
	})
	if err != nil {
		u.accounts.changed.Store(true)
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a := &u.accounts
	a.own, a.owners = own, owners
	for _, of := range a.stored {
		of.bytes = 0 // the other fields stay, because an eviction of the account may be in progress
	}
	for alias, of := range u.aliases {
		a.add(alias, of.bytes)
	}
	maps.DeleteFunc(a.stored, func(_ int64, of *bytesStored) bool { return of.bytes == 0 })
	return nil
}

// AccountUsage returns, by the id of the account, the stored bytes and the number of queued attempts of each
// account, with their limits; for admins. A serving process takes the bytes from memory.
func (u *Usage) AccountUsage(ctx context.Context, who relay.Actor) (map[int64]relay.AccountUsage, error) {
	if err := people.AllowAdmin(who); err != nil {
		return nil, err
	}
	type row struct {
		alias, owner int64 // alias is 0 for an account without aliases
		queued       int
		own          *int64
	}
	rows, err := db.ReadRows(ctx, u.db, "count queues of accounts", func(r *row) []any { return []any{&r.alias, &r.owner, &r.queued, &r.own} },
		`SELECT COALESCE(al.id, 0), o.id, COALESCE(w.n, 0), o.max_queue FROM accounts o LEFT JOIN aliases al ON al.owner_id = o.id
			LEFT JOIN (SELECT alias_id, COUNT(*) AS n FROM queue WHERE claim_node = '' GROUP BY alias_id) w ON w.alias_id = al.id`)
	if err != nil {
		return nil, err
	}
	out := map[int64]relay.AccountUsage{}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range rows {
		sum := out[r.owner]
		if of := u.aliases[r.alias]; of != nil {
			sum.Bytes += of.bytes
		}
		sum.Queued += r.queued
		sum.Limit, sum.QueueLimit = u.accounts.limitOf(r.owner), u.opt.AccountQueue
		if r.own != nil {
			sum.QueueLimit = int(*r.own)
		}
		out[r.owner] = sum
	}
	return out, nil
}
