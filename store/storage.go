package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"relay"
	"relay/store/cluster"
	"relay/store/db"
	"relay/store/events"
)

const (
	// unevictableFor is how long an alias that had nothing to evict is not tried again.
	unevictableFor = time.Second
	evictionSlice  = 2 * time.Second // of one alias or account in a round of the loop; then the next one is served
	countWait      = time.Second     // for the first count of a start
	toldAtOnce     = 1000            // aliases in one changeStorage
)

// changeStorage is the kind of a revision that tells the other nodes of a Postgres what this
// node added to the storage of aliases, and what it removed: "ALIAS:BYTES,…" as Credential. On
// both engines it tells those that serve what a command beside them has removed. A removal is told
// in its own transaction, so that no node removes something for bytes that another one has
// removed already. What a node stored in the second before it was killed is not told; the next start of
// each node counts anew.
const changeStorage relay.ChangeKind = "storage"

// storageUsage is how many bytes each alias has stored, as known by the serving process. It is
// counted once at start and updated after every commit of this node, and within seconds after
// those of others. Where there can be no limit, nothing is counted.
type storageUsage struct {
	counts bool  // there may be limits
	limit  int64 // bytes of one alias; 0 = no limit
	shared bool  // there may be other nodes

	mu       sync.Mutex
	aliases  map[int64]*bytesStored // those that have bytes
	counted  bool
	heard    int64 // newest revision that is in the count
	accounts accountStorage
}

// bytesStored is what one alias, or all aliases of an account, have stored.
type bytesStored struct {
	bytes  int64
	untold int64     // of an alias: of these, what the other nodes were not told yet
	full   time.Time // when it last had no event that could be evicted
	// above is how many bytes it may have while it has more than its limit; 0 = it has not. Half of
	// what is removed lowers it, new requests may use the other half: an alias or account shrinks to
	// a lowered limit, and its requests need not wait until it has.
	above    int64
	evicting chan struct{} // holds a token while a request evicts; nil = none did so far
}

// bound is how many bytes it may have now.
func (b *bytesStored) bound(limit int64) int64 {
	if b.bytes <= limit {
		b.above = 0
		return limit
	}
	if b.above == 0 {
		b.above = b.bytes
	}
	return max(limit, b.above)
}

// holder is whose storage is meant: an alias, or an account with all its aliases.
type holder struct {
	account bool
	id      int64
}

// add changes the stored bytes of an alias after a commit of this node.
func (k *storageUsage) add(alias, bytes int64) { k.change(alias, bytes, bytes) }

// change changes the stored bytes of an alias, and what the other nodes, if there may be any, have to be told of them.
func (k *storageUsage) change(alias, bytes, untold int64) {
	if !k.counts || bytes == 0 && untold == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.aliases[alias]
	if a == nil {
		a = &bytesStored{}
		k.aliases[alias] = a
	}
	a.add(bytes)
	k.accounts.add(alias, bytes)
	if k.shared {
		a.untold += untold
	}
	if a.bytes == 0 && a.untold == 0 { // among others, a removed alias
		delete(k.aliases, alias)
	}
}

func (b *bytesStored) add(bytes int64) {
	if b.bytes += bytes; bytes < 0 {
		b.full = time.Time{}
		if b.above > 0 {
			b.above = max(1, b.above+bytes/2)
		}
	}
}

// of returns what a holder has stored, and its limit; 0 = no limit. The lock is held.
func (k *storageUsage) of(h holder) (stored *bytesStored, limit int64) {
	stored, limit = k.aliases[h.id], k.limit
	if h.account {
		stored, limit = k.accounts.stored[h.id], k.accounts.limitOf(h.id)
	}
	if stored == nil {
		stored = &bytesStored{}
	}
	return stored, limit
}

// admits reports whether need more bytes fit, and if not, whether an eviction may make them fit:
// they are no more than the limit, and a moment ago something could be evicted.
func (k *storageUsage) admits(h holder, need int64) (fits, evictable bool) {
	if !k.counts {
		return true, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	stored, limit := k.of(h)
	if !k.counted || limit <= 0 || stored.bytes+need <= stored.bound(limit) {
		return true, false
	}
	return false, need <= limit && time.Since(stored.full) >= unevictableFor
}

// surplus is how many bytes an eviction still has to free so that need more bytes fit, or, with all,
// so that the holder has no more than its limit. It includes a margin, so that not every request has
// to wait for an eviction.
func (k *storageUsage) surplus(h holder, need int64, all bool) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	stored, limit := k.of(h)
	if !k.counted || limit <= 0 || stored.bytes == 0 {
		return 0
	}
	bytes := stored.bytes + need - limit
	if !all {
		bytes = min(bytes, 2*(stored.bytes+need-stored.bound(limit))) // half of it lowers the bound
	}
	return bytes + min(limit/64, 16<<20)
}

// overLimit lists the aliases, or the accounts, that have more than they may, but for those that a
// moment ago had nothing that could be evicted.
func (k *storageUsage) overLimit(accounts bool) (list []holder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.aliases
	if accounts {
		all = k.accounts.stored
	}
	for id := range all {
		h := holder{accounts, id}
		if stored, limit := k.of(h); k.counted && limit > 0 && stored.bytes > limit && time.Since(stored.full) >= unevictableFor {
			list = append(list, h)
		}
	}
	return list
}

// total is the sum over all aliases.
func (k *storageUsage) total() (sum int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.aliases {
		sum += a.bytes
	}
	return sum
}

// Capacity returns nil when a request of about need bytes can be stored for the alias. It
// returns storage-full when the disk is nearly full, or when the alias or its account has reached
// its limit and nothing can be evicted, and store-unavailable when Postgres is unreachable and the
// spool is full. If older events have to be evicted, it does that: those of the alias and those of the
// account each for at most wait. It otherwise answers from memory, and reserves nothing.
func (s *Store) Capacity(alias, need int64, wait time.Duration) *relay.Error {
	if err := s.db.Disk.Low(); err != nil {
		return err
	}
	if err := s.spool.Admits(need); err != nil {
		return err
	}
	if !s.fits(holder{id: alias}, need, wait) {
		return &relay.Error{
			Code: relay.CodeStorageFull, RetryAfter: 30 * time.Second,
			Detail: "this alias has reached its storage limit, and holds only events that stay: pinned, shared, queued or in progress; this request was not stored",
		}
	}
	if owner := s.storage.ownerOf(alias); owner != 0 && !s.fits(holder{true, owner}, need, wait) {
		return &relay.Error{
			Code: relay.CodeStorageFull, RetryAfter: 30 * time.Second,
			Detail: "the owner of this alias has reached the storage limit of all its aliases, and they hold only events that stay: pinned, shared, queued or in progress; this request was not stored",
		}
	}
	return nil
}

// fits reports whether need more bytes fit into what a holder may store. Older events are evicted
// for them, for at most wait: no more than the request needs, even if the holder has far more than its
// limit. Requests of one holder evict one after the other; they wait for no other holder and not for
// the loop.
func (s *Store) fits(h holder, need int64, wait time.Duration) bool {
	k := &s.storage
	fits, evictable := k.admits(h, need)
	if fits || !evictable || wait <= 0 {
		return fits
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	until, turn := time.Now().Add(wait*3/4), k.turn(h) // a transaction that is begun by then ends within ctx
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-turn }()
	if fits, evictable = k.admits(h, need); fits || !evictable {
		return fits
	}
	s.evict(ctx, h, need, false, until)
	fits, _ = k.admits(h, need)
	return fits
}

// turn returns the token of the requests of a holder that evict.
func (k *storageUsage) turn(h holder) chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	stored, _ := k.of(h)
	if stored.evicting == nil {
		stored.evicting = make(chan struct{}, 1)
	}
	return stored.evicting
}

// countStorage starts counting the stored bytes, in a snapshot from before the first commit
// so that later commits can be added to the result. A large store is counted in the
// background; until that is done no alias counts as full.
func (s *Store) countStorage(ctx context.Context) error {
	k := &s.storage
	k.limit, k.shared = s.opt.MaxAliasStorage, s.db.Dialect.SeveralNodes()
	k.aliases, k.accounts.limit = map[int64]*bytesStored{}, s.opt.MaxAccountStorage
	k.counts = k.limit > 0 || s.opt.AccountLimits
	if !k.counts {
		return nil
	}
	k.accounts.changed.Store(true)
	if err := s.readAccountLimits(ctx); err != nil {
		return err
	}
	db := s.db.Slow
	if !s.db.Dialect.SeveralNodes() {
		db = s.db.Read // the journal needs the only writer
	}
	tx, err := db.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return s.db.Fault("count stored bytes", err)
	}
	q := s.db.Session(ctx, tx)
	if err := q.Get(&k.heard, `SELECT COALESCE(MAX(id), 0) FROM revisions`); err != nil { // the first query takes the snapshot
		_ = tx.Rollback()
		return s.db.Fault("count stored bytes", err)
	}
	soon := make(chan struct{})
	s.wait.Go(func() {
		defer close(soon)
		if err := k.count(q, tx); err != nil && ctx.Err() == nil {
			s.log.Warn("stored bytes cannot be counted; max-alias-storage and max-account-storage are not enforced until the next start", "err", err)
		}
	})
	select {
	case <-soon:
	case <-time.After(countWait):
		s.log.Info("stored bytes are being counted; max-alias-storage and max-account-storage are enforced when that is done")
	}
	return nil
}

// count counts the stored bytes and ends the transaction.
func (k *storageUsage) count(q db.Query, tx *sqlx.Tx) error {
	defer func() { _ = tx.Rollback() }()
	var rows []struct {
		Alias int64 `db:"alias_id"`
		Bytes int64 `db:"bytes"`
	}
	if err := q.All(&rows, `SELECT e.alias_id, CAST(SUM(`+events.PayloadBytes+`) AS BIGINT) AS bytes
		FROM payloads p JOIN events e ON e.id = p.event_id GROUP BY e.alias_id`); err != nil {
		return err
	}
	for _, r := range rows {
		k.change(r.Alias, r.Bytes, 0)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counted = true
	return nil
}

// tellStorage tells the other nodes what this one has stored since the last call.
func (s *Store) tellStorage(ctx context.Context) {
	k := &s.storage
	untold := map[int64]int64{}
	k.mu.Lock()
	for alias, a := range k.aliases {
		if a.untold != 0 {
			untold[alias] = a.untold
		}
	}
	k.mu.Unlock()
	for some := range slices.Chunk(slices.Collect(maps.Keys(untold)), toldAtOnce) {
		var text []string
		for _, alias := range some {
			text = append(text, fmt.Sprintf("%d:%d", alias, untold[alias]))
		}
		err := s.db.Update(ctx, "tell what is stored", func(c *db.Tx) error {
			c.Announced = []relay.Change{{Kind: changeStorage, Credential: strings.Join(text, ",")}}
			return nil
		})
		if err != nil {
			return // the next call tells it
		}
		for _, alias := range some {
			k.change(alias, 0, -untold[alias])
		}
	}
}

// heardStorage counts what a revision of another process tells of storage, and reports whether it does.
func (s *Store) heardStorage(kind relay.ChangeKind, revision int64, text string) bool {
	if kind == changeStorage {
		s.storage.hear(revision, text)
	}
	s.storage.accounts.note(kind)
	return kind == changeStorage
}

// finish ends an update; see db.DB.
func (s *Store) finish(c *db.Tx) (committed func() <-chan struct{}, err error) {
	s.tellFreed(c)
	published, err := s.FinishUpdate(c)
	return func() <-chan struct{} {
		for alias, bytes := range c.Freed {
			s.storage.change(alias, -bytes, 0)
		}
		for _, change := range c.Announced {
			s.storage.accounts.note(change.Kind)
		}
		return published()
	}, err
}

// tellFreed has a transaction tell what it removes, where others count that too.
func (s *Store) tellFreed(c *db.Tx) {
	beside := s.stop == nil // a command; the server knows the limit
	if len(c.Freed) == 0 || !beside && (!s.db.Dialect.SeveralNodes() || !s.storage.counts) {
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

// noteFreed notes that a transaction removes bytes of an alias from its storage.
func noteFreed(c *db.Tx, alias, bytes int64) {
	if c.Freed == nil {
		c.Freed = map[int64]int64{}
	}
	c.Freed[alias] += bytes
}

// hear counts what a revision of another process tells, unless it was counted before. The
// revisions come in the order of their numbers.
func (k *storageUsage) hear(revision int64, text string) {
	k.mu.Lock()
	news := revision > k.heard
	k.heard = max(k.heard, revision)
	k.mu.Unlock()
	if !news {
		return
	}
	for alias, bytes := range cluster.ParseCounts(text) {
		k.change(alias, bytes, 0)
	}
}

// hearFrom counts what is told after a revision, after a failover that has lost later ones.
func (k *storageUsage) hearFrom(revision int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = revision
	k.accounts.changed.Store(true)
}

// hearEvictions makes the count of a transaction that evicts right. Other nodes may evict too: the transaction
// waits until theirs have ended, those of the account for those of its aliases, and counts what they have removed.
func (s *Store) hearEvictions(c *db.Tx, h holder) error {
	k := &s.storage
	if c.Dialect.SeveralNodes() {
		owner := h.id
		if !h.account {
			c.LockText("evict", strconv.FormatInt(h.id, 10)) // nodes of the version before know no other lock
			owner = k.ownerOf(h.id)
		}
		if owner != 0 {
			c.LockText("evict account", strconv.FormatInt(owner, 10))
		}
		k.mu.Lock()
		heard := k.heard
		k.mu.Unlock()
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
			if r.origin != s.ProcessName() {
				k.hear(r.id, r.text)
			}
		}
	}
	return c.Err
}

// evictOverLimit evicts from the aliases, or the accounts, that have more than they may. vacuumed is how many events
// were evicted when it last gave space back.
func (s *Store) evictOverLimit(ctx context.Context, accounts bool, vacuumed *int64) error {
	for _, h := range s.storage.overLimit(accounts) {
		s.evict(ctx, h, 0, true, time.Now().Add(evictionSlice))
	}
	n := s.retentionCounts.evicted.Load()
	if n == *vacuumed {
		return nil
	}
	*vacuumed = n
	return s.vacuum(ctx)
}

// evict removes the oldest events of an alias or an account until need more bytes fit or, with all, it
// has no more than its limit. It begins no transaction after a time. Evictions of one holder may run at once:
// each transaction counts what the others have removed.
func (s *Store) evict(ctx context.Context, h holder, need int64, all bool, until time.Time) {
	k, ended := &s.storage, false
	most := func(c *db.Tx) (surplus int64, err error) {
		if !time.Now().Before(until) {
			ended = true
			return 0, nil
		}
		err = s.hearEvictions(c, h)
		surplus = k.surplus(h, need, all)
		ended = err != nil || surplus <= 0
		return surplus, err
	}
	_, err := s.removeOldest(ctx, h, events.LastID, s.db.Now(), most, &s.retentionCounts.evicted)
	if err != nil && ctx.Err() == nil {
		of := "alias"
		if h.account {
			of = "account"
		}
		s.log.Warn("old events cannot be removed to make space", of, h.id, "err", err)
	}
	if err == nil && !ended { // nothing is left that can be evicted
		if fits, _ := k.admits(h, max(need, 1)); !fits {
			k.noteFull(h)
		}
	}
}

// noteFull notes that a holder has no event that can be evicted.
func (k *storageUsage) noteFull(h holder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	stored, _ := k.of(h)
	stored.full = time.Now()
}
