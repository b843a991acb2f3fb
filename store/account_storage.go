package store

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"

	"relay"
	"relay/store/db"
	"relay/store/events"
	"relay/store/people"
)

// accountStorage is what each account has stored in all its aliases, and how much it may. All of it
// is in storageUsage, and under its lock.
type accountStorage struct {
	limit   int64                  // of an account without a limit of its own; 0 = none
	own     map[int64]int64        // limits of single accounts; 0 = none
	owners  map[int64]int64        // of the aliases; nil where no account has a limit
	stored  map[int64]*bytesStored // of accounts with bytes; nil where no account has a limit
	changed atomic.Bool            // owners or limits were changed since they were read
}

// note notes a change by which an alias may have another owner, or an account another limit.
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

// add changes what the owner of an alias has stored.
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

// ownerOf returns the owner of an alias; 0 = it is not known, or no account has a limit.
func (k *storageUsage) ownerOf(alias int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.accounts.owners[alias]
}

// fullestAccount is the largest part of its limit that an account has stored; 0 = none has a limit.
func (k *storageUsage) fullestAccount() (most float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, of := range k.accounts.stored {
		if limit := k.accounts.limitOf(id); limit > 0 {
			most = max(most, float64(of.bytes)/float64(limit))
		}
	}
	return most
}

// readAccountLimits reads who owns which alias and how much each account may store, if that has
// changed since the last call. A new owner counts what the alias has stored from then on.
func (s *Store) readAccountLimits(ctx context.Context) error {
	k := &s.storage
	if !k.counts || !k.accounts.changed.Swap(false) {
		return nil
	}
	type pair struct{ id, value int64 }
	fields := func(p *pair) []any { return []any{&p.id, &p.value} }
	own, owners := map[int64]int64{}, map[int64]int64{}
	err := s.db.View(ctx, "read limits of accounts", func(q db.Query) error {
		list, err := db.RowsOf(q, fields, `SELECT id, max_storage FROM accounts WHERE max_storage IS NOT NULL`)
		for _, p := range list {
			own[p.id] = p.value
		}
		if err != nil || k.accounts.limit <= 0 && len(own) == 0 {
			return err
		}
		list, err = db.RowsOf(q, fields, `SELECT id, owner_id FROM aliases`)
		for _, p := range list {
			owners[p.id] = p.value
		}
		return err
	})
	if err != nil {
		k.accounts.changed.Store(true)
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	a := &k.accounts
	a.own, a.owners, a.stored = own, owners, map[int64]*bytesStored{}
	for alias, of := range k.aliases {
		a.add(alias, of.bytes)
	}
	return nil
}

// AccountUsage says what each account has stored and queued in all its aliases, by the id of the account; for
// admins. Bytes are counted from memory where this process serves.
func (s *Store) AccountUsage(ctx context.Context, who relay.Actor) (map[int64]relay.AccountUsage, error) {
	if err := people.AllowAdmin(who); err != nil {
		return nil, err
	}
	type row struct {
		alias, owner int64
		queued       int
		own          *int64
	}
	rows, err := db.ReadRows(ctx, s.db, "count queues of accounts", func(r *row) []any { return []any{&r.alias, &r.owner, &r.queued, &r.own} },
		`SELECT al.id, al.owner_id, COALESCE(w.n, 0), o.max_queue FROM aliases al JOIN accounts o ON o.id = al.owner_id
			LEFT JOIN (SELECT alias_id, COUNT(*) AS n FROM queue WHERE claim_node = '' GROUP BY alias_id) w ON w.alias_id = al.id`)
	if err != nil {
		return nil, err
	}
	out := map[int64]relay.AccountUsage{}
	k := &s.storage
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range rows {
		sum := out[r.owner]
		if of := k.aliases[r.alias]; of != nil {
			sum.Bytes += of.bytes
		}
		sum.Queued += r.queued
		sum.Limit, sum.QueueLimit = k.accounts.limitOf(r.owner), s.opt.MaxAccountQueue
		if r.own != nil {
			sum.QueueLimit = int(*r.own)
		}
		out[r.owner] = sum
	}
	return out, nil
}

// accountCandidates returns the oldest events of all aliases of an account after an id that are
// removable, as removalCandidates does for one alias.
func (s *Store) accountCandidates(ctx context.Context, account int64, r removalRange) (list []removalCandidate, err error) {
	err = s.db.View(ctx, "look for events to remove", func(q db.Query) error {
		list = nil
		var aliases []int64
		if err := q.All(&aliases, `SELECT id FROM aliases WHERE owner_id = ?`, account); err != nil || len(aliases) == 0 {
			return err
		}
		each := max(removalMinRows, 2*removalMaxRows/len(aliases))
		last := events.LastID // of the events up to it, none is missing in list
		for _, alias := range aliases {
			some, err := candidatesOf(q, alias, r, each)
			if err != nil {
				return err
			}
			if len(some) == each && bytes.Compare(some[each-1].ID[:], last[:]) < 0 {
				last = some[each-1].ID
			}
			list = append(list, some...)
		}
		slices.SortFunc(list, func(a, b removalCandidate) int { return bytes.Compare(a.ID[:], b.ID[:]) })
		n := 0
		for n < min(len(list), removalMaxRows) && bytes.Compare(list[n].ID[:], last[:]) <= 0 {
			n++
		}
		list = list[:n]
		if n == 0 {
			return nil
		}
		return loadSizes(q, list)
	})
	return list, err
}
