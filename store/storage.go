package store

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// storageUsage is how many bytes each alias has stored, as known by the serving process. It is
// counted once at start and updated after every commit of this node, and within seconds after
// those of others. Without a limit nothing is counted.
type storageUsage struct {
	limit int64 // bytes of one alias; 0 = no limit

	mu          sync.Mutex
	used        map[int64]int64
	changed     map[int64]int64 // by this node, since storageCounters took it; nil = nobody takes it
	counted     bool
	requests    map[int64]*evictionRequest
	unevictable map[int64]time.Time // when an alias last had no event that could be evicted
	wake        chan struct{}
}

// evictionRequest asks for the oldest events of an alias to be evicted.
type evictionRequest struct {
	need int64 // bytes that have to fit afterwards
	done chan struct{}
}

// unevictableFor is how long an alias that had nothing to evict is not tried again.
const unevictableFor = time.Second

func (k *storageUsage) init(limit int64) {
	k.limit = limit
	k.used, k.requests, k.unevictable = map[int64]int64{}, map[int64]*evictionRequest{}, map[int64]time.Time{}
	k.wake = make(chan struct{}, 1)
}

// add changes the stored bytes of an alias after a commit of this node.
func (k *storageUsage) add(alias, bytes int64) {
	if k.limit <= 0 || bytes == 0 {
		return
	}
	k.mu.Lock()
	if k.changed != nil {
		k.changed[alias] += bytes
	}
	k.mu.Unlock()
	k.addForeign(alias, bytes)
}

// isCounted reports whether the stored bytes were counted.
func (k *storageUsage) isCounted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.counted
}

// addForeign changes the stored bytes of an alias after a commit of any node.
func (k *storageUsage) addForeign(alias, bytes int64) {
	if bytes == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used[alias] += bytes; k.used[alias] > k.limit && k.counted {
		k.requestEviction(alias, 0)
	}
	if bytes < 0 {
		delete(k.unevictable, alias)
	}
	if k.used[alias] == 0 { // among others, a removed alias
		delete(k.used, alias)
	}
}

// requestEviction asks for need more bytes to fit. Call it with the lock held.
func (k *storageUsage) requestEviction(alias, need int64) *evictionRequest {
	w := k.requests[alias]
	if w == nil {
		w = &evictionRequest{done: make(chan struct{})}
		k.requests[alias] = w
	}
	w.need = max(w.need, need)
	signal(k.wake)
	return w
}

// fits reports whether need more bytes fit. If they do not, it returns the eviction to wait
// for, or nil when nothing could be evicted a moment ago.
func (k *storageUsage) fits(alias, need int64) (bool, *evictionRequest) {
	if k.limit <= 0 {
		return true, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.counted || k.used[alias]+need <= k.limit:
		return true, nil
	case need > k.limit || time.Since(k.unevictable[alias]) < unevictableFor:
		return false, nil
	}
	return false, k.requestEviction(alias, need)
}

// total is the sum over all aliases.
func (k *storageUsage) total() (sum int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.used {
		sum += n
	}
	return sum
}

// Capacity returns nil when a request of about need bytes can be stored for the alias. It
// returns storage-full when the disk is nearly full, or when the alias has reached its limit
// and nothing can be evicted, and store-unavailable when Postgres is unreachable and the
// spool is full. If older events can be evicted, it waits for that, up to wait. It answers
// from memory and reserves nothing.
func (s *Store) Capacity(alias, need int64, wait time.Duration) *relay.Error {
	if err := s.disk.low(); err != nil {
		return err
	}
	if err := s.spool.admits(need); err != nil {
		return err
	}
	ok, w := s.storage.fits(alias, need)
	if !ok && w != nil && wait > 0 {
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case <-w.done:
			ok, _ = s.storage.fits(alias, need)
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

// retentionCounts counts what retention deleted.
type retentionCounts struct {
	expired, evicted, days, orphans, bytes atomic.Int64
}

// Retention returns the counts since Serve.
func (s *Store) Retention() RetentionStats {
	return RetentionStats{
		Expired: s.retentionCounts.expired.Load(), Evicted: s.retentionCounts.evicted.Load(), DroppedDays: s.retentionCounts.days.Load(), Orphans: s.retentionCounts.orphans.Load(),
		FreedBytes: s.retentionCounts.bytes.Load(), StoredBytes: s.storage.total(),
		LongestHold: time.Duration(s.remover.longest.Load()),
	}
}

// countStorage starts counting the stored bytes, in a snapshot from before the first commit
// so that later commits can be added to the result. A large store is counted in the
// background; until that is done no alias counts as full.
func (s *Store) countStorage(ctx context.Context) error {
	s.storage.init(s.opt.MaxAliasStorage)
	if s.d.isPostgres {
		s.storage.changed = map[int64]int64{}
	}
	if s.opt.MaxAliasStorage <= 0 {
		return nil
	}
	db := s.direct
	if !s.d.isPostgres {
		db = s.read // the journal needs the only writer
	}
	conn, err := db.Connx(ctx)
	if err != nil {
		return s.fault("count stored bytes", err)
	}
	begin := `BEGIN`
	if s.d.isPostgres {
		begin = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	}
	q := session{ctx, conn, &s.d, &s.clock}
	if _, err = q.q.ExecContext(q.ctx, begin); err == nil {
		var one []int
		err = q.all(&one, `SELECT 1 FROM events LIMIT 1`) // the first query takes the snapshot
	}
	if err != nil {
		_ = conn.Close()
		return s.fault("count stored bytes", err)
	}
	soon := make(chan struct{})
	s.wait.Go(func() {
		defer close(soon)
		defer conn.Close()
		if err := s.storage.count(q, &s.storageCounters); err != nil && ctx.Err() == nil {
			s.log.Warn("stored bytes cannot be counted; max-alias-storage is not enforced until the next start", "err", err)
		}
	})
	late := time.NewTimer(countWait)
	defer late.Stop()
	select {
	case <-soon:
	case <-late.C:
		s.log.Info("stored bytes are being counted; max-alias-storage is enforced when that is done")
	}
	return nil
}

const countWait = time.Second

// count counts the stored bytes; counters learns what of the other nodes is in them.
func (k *storageUsage) count(q session, counters *storageCounters) error {
	var rows []struct {
		Alias int64 `db:"alias_id"`
		Bytes int64 `db:"bytes"`
	}
	err := q.all(&rows, `SELECT e.alias_id, CAST(SUM(`+payloadBytes+`) AS BIGINT) AS bytes
		FROM payloads p JOIN events e ON e.id = p.event_id GROUP BY e.alias_id`)
	var others []counterRow
	if err == nil && q.d.isPostgres {
		others, err = q.storageCounters(0)
	}
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
	counters.merge(others, "-") // none of the rows is of this process, which has written none yet
	k.counted = true
	for alias, n := range k.used {
		if n > k.limit {
			k.requestEviction(alias, 0)
		}
	}
	return nil
}

// evictionLoop serves eviction requests until ctx ends.
func (s *Store) evictionLoop(ctx context.Context) {
	k := &s.storage
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

func (k *storageUsage) next() (int64, *evictionRequest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for alias, w := range k.requests {
		delete(k.requests, alias)
		return alias, w
	}
	return 0, nil
}

// excess is how many bytes have to be evicted before need more bytes fit; 0 = they fit. It
// includes a margin, so that not every request has to wait for an eviction.
func (k *storageUsage) excess(alias, need int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used[alias]+need <= k.limit {
		return 0
	}
	return k.used[alias] + need - k.limit + min(k.limit/64, 16<<20)
}

func (k *storageUsage) markUnevictable(alias int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(k.unevictable, func(_ int64, at time.Time) bool { return now.Sub(at) > unevictableFor })
	k.unevictable[alias] = now
}

// evict removes the oldest events of an alias that need not be kept, until need more bytes
// fit.
func (s *Store) evict(ctx context.Context, alias, need int64) error {
	target := s.storage.excess(alias, need)
	var after relay.ID
	for total := (removalResult{}); target > total.bytes; {
		now := s.now()
		list, err := s.removalCandidates(ctx, alias, after, lastID, now)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			if s.storage.excess(alias, need) > 0 {
				s.storage.markUnevictable(alias)
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
		s.retentionCounts.evicted.Add(int64(done.events))
		s.retentionCounts.bytes.Add(done.bytes)
		if err != nil {
			return err
		}
	}
	return s.vacuum(ctx)
}

// lastID is the highest possible id.
var lastID = relay.ID{
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
}

// addUsage notes what a transaction of the journal stores for an alias. It is added to the
// usage after the commit.
func (w *writer) addUsage(alias int64, messages ...int64) {
	if w.usageDelta == nil {
		w.usageDelta = map[int64]int64{}
	}
	for _, n := range messages {
		w.usageDelta[alias] += n
	}
}

// storedSize is how many bytes a message counts in the storage of its alias.
func storedSize(m *relay.Message, extra ...[]byte) int64 {
	n := payloadRowOverhead + int64(len(m.Head)+len(m.Lines))
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

// attemptStoredSize is how many bytes an attempt counts.
func attemptStoredSize(a *relay.Attempt) int64 {
	if !hasPayload(a) {
		return 0
	}
	return storedSize(&a.Response, a.SentHead, packInterim(a.Interim))
}
