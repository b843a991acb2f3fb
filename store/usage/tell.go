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

// changeStorage is the kind of a revision that tells the other nodes of a Postgres what this
// node added to the storage of aliases, and what it removed: "ALIAS:BYTES,…" as Credential. On
// both engines it tells those that serve what a command beside them has removed. A removal is told
// in its own transaction, so that no node removes something for bytes that another one has
// removed already. What a node stored in the second before it was killed is not told; the next start of
// each node counts anew.
const changeStorage relay.ChangeKind = "storage"

const toldAtOnce = 1000 // aliases in one changeStorage

// Tell tells the other nodes what this one has stored since the last call.
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
			return // the next call tells it
		}
		for _, alias := range some {
			u.change(alias, 0, -untold[alias])
		}
	}
}

// Heard counts what a revision of another process tells of storage, and reports whether it does.
func (u *Usage) Heard(kind relay.ChangeKind, revision int64, text string) bool {
	if kind == changeStorage {
		u.hear(revision, text)
	}
	u.accounts.note(kind)
	return kind == changeStorage
}

// Committed counts what a transaction has removed, and notes that it may have changed owners or limits.
func (u *Usage) Committed(c *db.Tx) {
	for alias, bytes := range c.Freed {
		u.change(alias, -bytes, 0)
	}
	for _, change := range c.Announced {
		u.accounts.note(change.Kind)
	}
}

// TellFreed has a transaction tell what it removes, where others count that too.
func (u *Usage) TellFreed(c *db.Tx) {
	beside := !u.serving.Load() // a command; the server knows the limit
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

// hear counts what a revision of another process tells, unless it was counted before. The
// revisions come in the order of their numbers.
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

// Lost counts what is told after a revision, after a failover that has lost later ones.
func (u *Usage) Lost(revision int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.heard = revision
	u.accounts.changed.Store(true)
}

// HearEvictions makes the count of a transaction that evicts right. Other nodes may evict too: the transaction
// waits until theirs have ended, those of the account for those of its aliases, and counts what they have removed.
func (u *Usage) HearEvictions(c *db.Tx, h Holder) error {
	if c.Dialect.SeveralNodes() {
		owner := h.ID
		if !h.Account {
			c.LockText("evict", strconv.FormatInt(h.ID, 10)) // nodes of the version before know no other lock
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
