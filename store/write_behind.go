package store

import (
	"context"
	"sync"
	"time"

	"relay/store/db"
)

const (
	maxWriteBehind     = 10_000 // writes that wait
	maxWriteBehindKeys = 10_000 // keys for which the last time is remembered
	writeBehindBatch   = 200    // writes in one transaction
)

// writeBehind holds small writes that nobody waits for, such as the last use of a credential,
// until they are flushed, which happens each second. A bounded number waits, and what does not
// fit is lost. Safe for concurrent use.
type writeBehind struct {
	mu      sync.Mutex
	waiting []func(*db.Tx) error
	last    map[string]time.Time // when a write of each key was added last
	lost    int
}

// add queues a write, unless one of the same key was added within interval: a client that
// reconnects each minute would fill the audit log.
func (l *writeBehind) add(key string, interval time.Duration, write func(*db.Tx) error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, known := l.last[key]; known && now.Sub(last) < interval {
		return
	}
	if len(l.waiting) >= maxWriteBehind {
		l.lost++
		return
	}
	if l.last == nil || len(l.last) >= maxWriteBehindKeys {
		l.last = map[string]time.Time{}
	}
	l.last[key] = now
	l.waiting = append(l.waiting, write)
}

// flushWriteBehind writes what waits, best effort: after a failure the rest waits for the next
// call.
func (s *Store) flushWriteBehind(ctx context.Context) {
	l := &s.later
	for {
		l.mu.Lock()
		n, lost := min(len(l.waiting), writeBehindBatch), l.lost
		batch := l.waiting[:n:n]
		l.waiting, l.lost = l.waiting[n:], 0
		l.mu.Unlock()
		if lost > 0 {
			s.log.Warn("some logins and takeovers are not in the audit log, or uses of credentials not stored: too many came at once", "lost", lost)
		}
		if n == 0 {
			return
		}
		if err := s.db.Update(ctx, "write what waits", func(c *db.Tx) error {
			for _, write := range batch {
				if err := write(c); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			l.mu.Lock()
			l.waiting = append(batch, l.waiting...)
			l.mu.Unlock()
			return
		}
	}
}
