package usage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"relay"
	"relay/store/cluster"
	"relay/store/db"
)

// changeStorage is the kind of a revision about the storage of aliases; its Credential is "ALIAS:BYTES,…".
// With it, a node of a Postgres reports the bytes that it has added and removed, and an operator command on
// either engine those that it has removed. A removal is reported in its own transaction, so that no node
// evicts again for bytes that are already gone. The bytes of the last second before a kill are not reported;
// the next start of each node counts anew.
const changeStorage relay.ChangeKind = "storage"

const toldAtOnce = 1000 // largest number of aliases in one changeStorage

// Tell reports to the other nodes the bytes that this node has stored since the last call of Tell.
func (u *Usage) Tell(ctx context.Context) {
	untold := map[int64]int64{}
	u.mu.Lock()
	for alias, a := range u.aliases {
		if a.untold != 0 {
			untold[alias] = a.untold
		}
	}
	u.mu.Unlock()
	for some := range slices.Chunk(slices.Collect(maps.Keys(untold)), toldAtOnce) {
		var text []string
		for _, alias := range some {
			text = append(text, fmt.Sprintf("%d:%d", alias, untold[alias]))
		}
		err := u.db.Update(ctx, "tell what is stored", func(c *db.Tx) error {
			c.Announced = []relay.Change{{Kind: changeStorage, Credential: strings.Join(text, ",")}}
			return nil
		})
		if err != nil {
			return // the next call reports the bytes
		}
		for _, alias := range some {
			u.change(alias, 0, -untold[alias])
		}
	}
}

// Heard counts the bytes in a revision of another process, and reports whether the revision is about storage.
func (u *Usage) Heard(kind relay.ChangeKind, revision int64, text string) bool {
	if kind == changeStorage {
		u.hear(revision, text)
	}
	u.accounts.note(kind)
	return kind == changeStorage
}

// Committed counts the bytes that a transaction has removed, and notes that it may have changed owners
// or limits.
func (u *Usage) Committed(c *db.Tx) {
	for alias, bytes := range c.Freed {
		u.change(alias, -bytes, 0)
	}
	for _, change := range c.Announced {
		u.accounts.note(change.Kind)
	}
}

// TellFreed adds a revision with the removed bytes to a transaction, if other processes count them too.
func (u *Usage) TellFreed(c *db.Tx) {
	beside := !u.serving.Load() // this process is a command, and the server may have a limit and then needs the report
	if len(c.Freed) == 0 || !beside && (!u.db.Dialect.SeveralNodes() || !u.counts()) {
		return
	}
	text := []string{}
	for _, alias := range slices.Sorted(maps.Keys(c.Freed)) {
		text = append(text, fmt.Sprintf("%d:%d", alias, -c.Freed[alias]))
	}
	for some := range slices.Chunk(text, toldAtOnce) {
		c.Announced = append(c.Announced, relay.Change{Kind: changeStorage, Credential: strings.Join(some, ",")})
	}
}

// hear counts the bytes in a revision of another process, unless it has counted this revision already.
// Revisions arrive in the order of their numbers.
func (u *Usage) hear(revision int64, text string) {
	u.mu.Lock()
	news := revision > u.heard
	u.heard = max(u.heard, revision)
	u.mu.Unlock()
	if !news {
		return
	}
	for alias, bytes := range cluster.ParseCounts(text) {
		u.change(alias, bytes, 0)
	}
}

// Lost is called after a failover has lost the revisions above the given number. New revisions get the lost
// numbers again, and are then counted.
func (u *Usage) Lost(revision int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.heard = revision
	u.accounts.changed.Store(true)
}

// HearEvictions corrects the count before a transaction evicts, because other nodes may evict too. The
// transaction waits until their evictions of the same alias or account have ended; for an account, it also
// waits for evictions of the account's aliases. It then counts the bytes that these evictions have removed.
func (u *Usage) HearEvictions(c *db.Tx, h Holder) error {
	if c.Dialect.SeveralNodes() {
		owner := h.ID
		if !h.Account {
			c.LockText("evict", strconv.FormatInt(h.ID, 10)) // nodes of the previous version know only this lock
			owner = u.OwnerOf(h.ID)
		}
		if owner != 0 {
			c.LockText("evict account", strconv.FormatInt(owner, 10))
		}
		u.mu.Lock()
		heard := u.heard
		u.mu.Unlock()
		type told struct {
			id           int64
			origin, text string
		}
		rows, err := db.RowsOf(c.Query, func(r *told) []any { return []any{&r.id, &r.origin, &r.text} },
			`SELECT id, origin, credential FROM revisions WHERE id > ? AND kind = ? ORDER BY id`, heard, string(changeStorage))
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.origin != u.opt.Process {
				u.hear(r.id, r.text)
			}
		}
	}
	return c.Err
}
