package store

import (
	"context"
	"sync"
	"time"
)

// usage collects when credentials were used last, so that a read does not have to
// write; flushed each second, a credential at most once a minute.
type usage struct {
	mu   sync.Mutex
	last map[usageKey]int64
}

type usageKey struct{ table, id string }

const usageStep = time.Minute

func (u *usage) note(table, id string, before int64) {
	now := time.Now()
	if now.Sub(moment(before)) < usageStep {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = map[usageKey]int64{}
	}
	u.last[usageKey{table, id}] = micros(now)
}

// flushUsage writes what was noted; best effort.
func (s *Store) flushUsage(ctx context.Context) {
	s.used.mu.Lock()
	last := s.used.last
	s.used.last = nil
	s.used.mu.Unlock()
	if len(last) == 0 || ctx.Err() != nil {
		return
	}
	err := s.update(ctx, "note use of credentials", func(c *change) error {
		for k, at := range last {
			if _, err := c.exec(`UPDATE `+k.table+` SET last_used_at = ? WHERE id = ?`, at, k.id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.log.Warn("use of credentials not noted", "err", err)
	}
}
