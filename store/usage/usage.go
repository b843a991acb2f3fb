// Package usage counts the stored bytes of each alias and each account, and decides whether more bytes fit
// into their limits. The nodes of a database report to each other the bytes that they add and remove.
package usage

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"relay/store/db"
	"relay/store/events"
)

// Options holds the limits (0 = none) and the functions that connect a Usage to the rest of the store.
type Options struct {
	Log *slog.Logger
	// AliasLimit bounds the stored bytes of an alias. AccountLimits turns on a limit on the bytes of all
	// aliases of an account: the account's own limit, or else AccountLimit.
	AliasLimit    int64
	AccountLimits bool
	AccountLimit  int64
	// AccountQueue bounds the queued attempts of an account that has no limit of its own. AccountUsage
	// returns it.
	AccountQueue int
	// Process is the name of this process in revisions.
	Process string
	// Go runs a goroutine that ends with the context of Start.
	Go func(func())
}

const (
	// unevictableFor is the time for which an alias or account that had nothing to evict is not tried again.
	unevictableFor = time.Second
	countWait      = time.Second
)

// Usage holds the stored bytes of each alias, as known by the serving process. They are counted once at the
// start. Bytes of later commits are added: of this node at once, of other nodes within seconds. If there can
// be no limit, nothing is counted.
type Usage struct {
	db      *db.DB
	log     *slog.Logger
	opt     Options
	serving atomic.Bool // Start was called: the process is a server and not an operator command

	mu       sync.Mutex
	aliases  map[int64]*bytesStored
	counted  bool
	heard    int64 // number of the newest revision whose bytes are counted
	accounts accountStorage
}

// bytesStored holds the stored bytes of one alias, or of all aliases of an account.
type bytesStored struct {
	bytes  int64
	untold int64     // bytes of an alias that were not reported to the other nodes yet
	full   time.Time // last time at which no event could be evicted
	// above is the number of bytes allowed while the holder exceeds its limit; 0 = the holder is within its
	// limit. When bytes are removed, the allowed number falls by half of them, and new requests may use the
	// other half. So requests need not wait until the holder is within its limit.
	above    int64
	evicting chan struct{} // holds a token while a request evicts; nil = no request has evicted yet
}

// bound returns the number of bytes that the holder may have now.
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

// Holder names what stored bytes are counted for: an alias, or an account with all its aliases.
type Holder struct {
	Account bool
	ID      int64
}

// New returns a Usage. It counts nothing before Start.
func New(d *db.DB, o Options) *Usage {
	u := &Usage{db: d, log: o.Log, opt: o, aliases: map[int64]*bytesStored{}}
	u.accounts.limit, u.accounts.stored = o.AccountLimit, map[int64]*bytesStored{}
	return u
}

// Serving reports whether this process serves the store, unlike an operator command.
func (u *Usage) Serving() bool { return u.serving.Load() }

// counts reports whether there may be limits, so that this process has to count.
func (u *Usage) counts() bool {
	return u.serving.Load() && (u.opt.AliasLimit > 0 || u.opt.AccountLimits)
}

// Add adds bytes, which may be negative, to the count of an alias after a commit of this node.
func (u *Usage) Add(alias, bytes int64) { u.change(alias, bytes, bytes) }

// change adds bytes to the count of an alias. It adds the number untold to the bytes that have to be reported
// to the other nodes.
func (u *Usage) change(alias, bytes, untold int64) {
	if !u.counts() || bytes == 0 && untold == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.aliases[alias]
	if a == nil {
		a = &bytesStored{}
		u.aliases[alias] = a
	}
	a.add(bytes)
	u.accounts.add(alias, bytes)
	if u.db.Dialect.SeveralNodes() {
		a.untold += untold
	}
	if a.bytes == 0 && a.untold == 0 {
		delete(u.aliases, alias)
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

// of returns the stored bytes of a holder, and its limit; 0 = no limit. The caller holds the lock.
func (u *Usage) of(h Holder) (stored *bytesStored, limit int64) {
	stored, limit = u.aliases[h.ID], u.opt.AliasLimit
	if h.Account {
		stored, limit = u.accounts.stored[h.ID], u.accounts.limitOf(h.ID)
	}
	if stored == nil {
		stored = &bytesStored{}
	}
	return stored, limit
}

// Admits reports whether a holder has space for a number of bytes (need), and if not, whether an eviction may
// make this space. It may if need does not exceed the limit, unless the holder had no event to evict a moment
// ago.
func (u *Usage) Admits(h Holder, need int64) (fits, evictable bool) {
	if !u.counts() {
		return true, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	stored, limit := u.of(h)
	if !u.counted || limit <= 0 || stored.bytes+need <= stored.bound(limit) {
		return true, false
	}
	return false, need <= limit && time.Since(stored.full) >= unevictableFor
}

// Surplus returns the number of bytes that an eviction still has to free: if the parameter all is true, until
// the holder is within its limit, otherwise until it has space for a number of bytes (need). The result
// includes a margin, so that not every request has to wait for an eviction.
func (u *Usage) Surplus(h Holder, need int64, all bool) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	stored, limit := u.of(h)
	if !u.counted || limit <= 0 || stored.bytes == 0 {
		return 0
	}
	bytes := stored.bytes + need - limit
	if !all {
		bytes = min(bytes, 2*(stored.bytes+need-stored.bound(limit))) // twice the bytes, because a removal lowers the bound by half of the removed bytes
	}
	return bytes + min(limit/64, 16<<20)
}

// OverLimit lists the aliases, or the accounts, that exceed their limits, except those that had
// nothing to evict a moment ago.
func (u *Usage) OverLimit(accounts bool) (list []Holder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.aliases
	if accounts {
		all = u.accounts.stored
	}
	for id := range all {
		if h := (Holder{accounts, id}); u.isOver(h) {
			list = append(list, h)
		}
	}
	return list
}

// IsOver reports whether OverLimit would list a holder.
func (u *Usage) IsOver(h Holder) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.isOver(h)
}

func (u *Usage) isOver(h Holder) bool {
	stored, limit := u.of(h)
	if !u.counted || limit <= 0 || stored.bytes <= limit {
		stored.bound(limit) // sets the field above to 0, so that the holder may have no more than its limit from now on
		return false
	}
	return time.Since(stored.full) >= unevictableFor
}

// Total returns the stored bytes of all aliases.
func (u *Usage) Total() (sum int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range u.aliases {
		sum += a.bytes
	}
	return sum
}

// Turn returns the channel evicting of a holder, which has place for one token. A request of the holder puts a
// token into the channel before it evicts, and takes the token out afterwards.
func (u *Usage) Turn(h Holder) chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	stored, _ := u.of(h)
	if stored.evicting == nil {
		stored.evicting = make(chan struct{}, 1)
	}
	return stored.evicting
}

// Start starts counting the stored bytes, in a snapshot from before the first commit
// so that later commits can be added to the result. A large store is counted in the
// background; until that is done no alias counts as full.
func (u *Usage) Start(ctx context.Context) error {
	u.serving.Store(true)
	if !u.counts() {
		return nil
	}
	u.accounts.changed.Store(true)
	if err := u.ReadLimits(ctx); err != nil {
		return err
	}
	db := u.db.Slow
	if !u.db.Dialect.SeveralNodes() {
		db = u.db.Read // the journal needs the only writer
	}
	tx, err := db.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return u.db.Fault("count stored bytes", err)
	}
	q := u.db.Session(ctx, tx)
	if err := q.Get(&u.heard, `SELECT COALESCE(MAX(id), 0) FROM revisions`); err != nil { // the first query of the transaction takes its snapshot
		_ = tx.Rollback()
		return u.db.Fault("count stored bytes", err)
	}
	soon := make(chan struct{})
	u.opt.Go(func() {
		defer close(soon)
		if err := u.count(q, tx); err != nil && ctx.Err() == nil {
			u.log.Warn("stored bytes cannot be counted; max-alias-storage and max-account-storage are not enforced until the next start", "err", err)
		}
	})
	select {
	case <-soon:
	case <-time.After(countWait):
		u.log.Info("stored bytes are being counted; max-alias-storage and max-account-storage are enforced when that is done")
	}
	return nil
}

// count counts the stored bytes and ends the transaction.
func (u *Usage) count(q db.Query, tx *sqlx.Tx) error {
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
		u.change(r.Alias, r.Bytes, 0)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counted = true
	return nil
}

// NoteFull notes that a holder has no event to evict.
func (u *Usage) NoteFull(h Holder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	stored, _ := u.of(h)
	stored.full = time.Now()
}
