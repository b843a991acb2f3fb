package store

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// stock is what each alias has stored, in bytes, as the serving process knows it:
// counted once at start, then moved by every commit. Nothing is counted while there
// is no limit.
type stock struct {
	limit int64 // of an alias; 0 = none

	mu      sync.Mutex
	used    map[int64]int64
	counted bool
	wanted  map[int64]*clearing
	stuck   map[int64]time.Time // aliases of which nothing could go, and when that was
	wake    chan struct{}
}

// clearing is room that is being made at an alias.
type clearing struct {
	need int64 // bytes that have to fit
	done chan struct{}
}

// stuckFor is how long an alias without anything to remove is taken to stay so.
const stuckFor = time.Second

func (k *stock) init(limit int64) {
	k.limit = limit
	k.used, k.wanted, k.stuck = map[int64]int64{}, map[int64]*clearing{}, map[int64]time.Time{}
	k.wake = make(chan struct{}, 1)
}

// add moves what an alias has, after a commit.
func (k *stock) add(alias, bytes int64) {
	if k.limit <= 0 || bytes == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used[alias] += bytes; k.used[alias] > k.limit && k.counted {
		k.want(alias, 0)
	}
	if bytes < 0 {
		delete(k.stuck, alias)
	}
	if k.used[alias] == 0 { // also of one that was removed
		delete(k.used, alias)
	}
}

// want asks for room; the lock is held.
func (k *stock) want(alias, need int64) *clearing {
	w := k.wanted[alias]
	if w == nil {
		w = &clearing{done: make(chan struct{})}
		k.wanted[alias] = w
	}
	w.need = max(w.need, need)
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return w
}

// fits tells whether need more bytes have room, and if not, what to wait for: nil
// when nothing could be removed a moment ago.
func (k *stock) fits(alias, need int64) (bool, *clearing) {
	if k.limit <= 0 {
		return true, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.counted || k.used[alias]+need <= k.limit:
		return true, nil
	case need > k.limit || time.Since(k.stuck[alias]) < stuckFor:
		return false, nil
	}
	return false, k.want(alias, need)
}

// total is what all aliases have.
func (k *stock) total() (sum int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.used {
		sum += n
	}
	return sum
}

// Room is nil when a request of about need bytes may be kept for the alias, else
// storage-full: the disk is nearly full, or the alias has all it may have and none
// of it can go; or store-unavailable: Postgres is away and the spool full. Where
// older events can go first, it waits up to wait for that. Answered from memory;
// nothing is reserved.
func (s *Store) Room(alias, need int64, wait time.Duration) *relay.Error {
	if err := s.disk.low(); err != nil {
		return err
	}
	if err := s.spool.admits(need); err != nil {
		return err
	}
	ok, w := s.stock.fits(alias, need)
	if !ok && w != nil && wait > 0 {
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case <-w.done:
			ok, _ = s.stock.fits(alias, need)
		case <-late.C:
		}
	}
	if ok {
		return nil
	}
	return &relay.Error{
		Code: relay.CodeStorageFull, RetryAfter: 30 * time.Second,
		Detail: "this alias has stored all it may, and what it has is queued, shared or under way; nothing of this request was kept",
	}
}

// gone counts what retention did.
type gone struct {
	expired, evicted, days, orphans, bytes atomic.Int64
}

// Retention gives the counts since Serve.
func (s *Store) Retention() RetentionStats {
	return RetentionStats{
		Expired: s.gone.expired.Load(), Evicted: s.gone.evicted.Load(), DroppedDays: s.gone.days.Load(), Orphans: s.gone.orphans.Load(),
		FreedBytes: s.gone.bytes.Load(), StoredBytes: s.stock.total(),
		LongestHold: time.Duration(s.remover.longest.Load()),
	}
}

// countStock starts counting what is stored: in one snapshot from before the first
// commit, so that the commits can be added to it. A large store is counted behind
// the start; until that is done no alias counts as full.
func (s *Store) countStock(ctx context.Context) error {
	s.stock.init(s.opt.MaxAliasStorage)
	if s.opt.MaxAliasStorage <= 0 {
		return nil
	}
	db := s.direct
	if !s.d.bulk {
		db = s.read // the only writer is needed elsewhere
	}
	conn, err := db.Connx(ctx)
	if err != nil {
		return s.fault("count stored bytes", err)
	}
	begin := `BEGIN`
	if s.d.bulk {
		begin = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	}
	q := session{ctx, conn, &s.d, &s.clock}
	if _, err = q.q.ExecContext(q.ctx, begin); err == nil {
		var one []int
		err = q.all(&one, `SELECT 1 FROM events LIMIT 1`) // takes the snapshot
	}
	if err != nil {
		_ = conn.Close()
		return s.fault("count stored bytes", err)
	}
	soon := make(chan struct{})
	s.wait.Go(func() {
		defer close(soon)
		defer conn.Close()
		if err := s.stock.count(q); err != nil && ctx.Err() == nil {
			s.log.Warn("stored bytes cannot be counted; max-alias-storage holds after the next start", "err", err)
		}
	})
	late := time.NewTimer(countWait)
	defer late.Stop()
	select {
	case <-soon:
	case <-late.C:
		s.log.Info("stored bytes are being counted; max-alias-storage holds when that is done")
	}
	return nil
}

const countWait = time.Second

func (k *stock) count(q session) error {
	var rows []struct {
		Alias int64 `db:"alias_id"`
		Bytes int64 `db:"bytes"`
	}
	err := q.all(&rows, `SELECT e.alias_id, CAST(SUM(`+payloadBytes+`) AS BIGINT) AS bytes
		FROM payloads p JOIN events e ON e.id = p.event_id GROUP BY e.alias_id`)
	if _, rerr := q.q.ExecContext(context.WithoutCancel(q.ctx), `ROLLBACK`); err == nil {
		err = rerr
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range rows {
		k.used[r.Alias] += r.Bytes
	}
	k.counted = true
	for alias, n := range k.used {
		if n > k.limit {
			k.want(alias, 0)
		}
	}
	return nil
}

// keepSize makes room where an alias has too much, until ctx ends.
func (s *Store) keepSize(ctx context.Context) {
	k := &s.stock
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		}
		for {
			alias, w := k.next()
			if w == nil {
				break
			}
			if err := s.evict(ctx, alias, w.need); err != nil && ctx.Err() == nil {
				s.log.Warn("old events of a full alias cannot be removed", "alias", alias, "err", err)
			}
			close(w.done)
		}
	}
}

func (k *stock) next() (int64, *clearing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for alias, w := range k.wanted {
		delete(k.wanted, alias)
		return alias, w
	}
	return 0, nil
}

// over is how many bytes have to go before need more fit, with some to spare so
// that not every request has to wait for another one to go; 0 = it fits.
func (k *stock) over(alias, need int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used[alias]+need <= k.limit {
		return 0
	}
	return k.used[alias] + need - k.limit + min(k.limit/64, 16<<20)
}

func (k *stock) isStuck(alias int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(k.stuck, func(_ int64, at time.Time) bool { return now.Sub(at) > stuckFor })
	k.stuck[alias] = now
}

// evict removes the oldest events of an alias that need not stay until need more
// bytes fit.
func (s *Store) evict(ctx context.Context, alias, need int64) error {
	target := s.stock.over(alias, need)
	var after relay.ID
	for total := (removed{}); target > total.bytes; {
		now := s.now()
		list, err := s.oldest(ctx, alias, after, lastID, now)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			if s.stock.over(alias, need) > 0 {
				s.stock.isStuck(alias)
			}
			return nil
		}
		after = list[len(list)-1].ID
		enough, sum := 0, total.bytes
		for ; enough < len(list) && sum < target; enough++ {
			sum += list[enough].Bytes
		}
		done, err := s.remove(ctx, alias, list[:enough], now, false)
		total.bytes += done.bytes
		s.gone.evicted.Add(int64(done.events))
		s.gone.bytes.Add(done.bytes)
		if err != nil {
			return err
		}
	}
	return s.vacuum(ctx)
}

// lastID follows every other one.
var lastID = relay.ID{
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
}

// grow notes what a transaction of the journal adds; settled after its commit.
func (w *writer) grow(alias int64, messages ...int64) {
	if w.grown == nil {
		w.grown = map[int64]int64{}
	}
	for _, n := range messages {
		w.grown[alias] += n
	}
}

// kept is what a message counts in the storage of its alias.
func kept(m *relay.Message, extra ...[]byte) int64 {
	n := keepRow + int64(len(m.Head)+len(m.Lines))
	if m.Body.Parts > 0 {
		n += m.Body.Stored
	} else {
		n += int64(len(m.Body.Data))
	}
	for _, b := range extra {
		n += int64(len(b))
	}
	return n
}

// keptAttempt is what the bytes of an attempt count.
func keptAttempt(a *relay.Attempt) int64 {
	if !hasPayload(a) {
		return 0
	}
	return kept(&a.Response, a.SentHead, packInterim(a.Interim))
}
