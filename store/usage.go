package store

import (
	"context"
	"sync"
	"time"
)

// usage collects when credentials were last used, so that a read does not have to write. It
// is written each second, for each credential at most once a minute.
type usage struct {
	mu   sync.Mutex
	last map[usageKey]int64
}

type usageKey struct{ table, id string }

const credentialUseInterval = time.Minute

func (u *usage) record(table, id string, before int64) {
	now := time.Now()
	if now.Sub(fromMicros(before)) < credentialUseInterval {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = map[usageKey]int64{}
	}
	u.last[usageKey{table, id}] = micros(now)
}

// flushUsage writes the collected times, best effort.
func (s *Store) flushUsage(ctx context.Context) {
	s.credentialUse.mu.Lock()
	last := s.credentialUse.last
	s.credentialUse.last = nil
	s.credentialUse.mu.Unlock()
	if len(last) == 0 || ctx.Err() != nil {
		return
	}
	err := s.update(ctx, "record use of credentials", func(c *writeTx) error {
		for k, at := range last {
			if _, err := c.exec(`UPDATE `+k.table+` SET last_used_at = ? WHERE id = ?`, at, k.id); err != nil {
				return err
			}
			if k.table == "tokens" {
				if _, err := c.exec(`UPDATE tokens SET expires_at = last_used_at + renewal WHERE id = ? AND renewal > 0`, k.id); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		s.log.Warn("last use of credentials not stored", "err", err)
	}
}
