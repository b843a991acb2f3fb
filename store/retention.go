package store

import (
	"context"
	"fmt"
	"maps"
	"time"

	"relay"
)

// Times of retention. What is due is looked for so often that it goes at most
// max(5 s, retention/100) late.
const (
	retainTick  = time.Second
	retainRare  = time.Hour
	auditLife   = 400 * 24 * time.Hour
	auditRows   = 100_000 // most that are kept, however young
	expiredRows = 200
)

// RetentionStats count what went since Serve.
type RetentionStats struct {
	Expired     int64         // events removed by age
	Evicted     int64         // events removed because their alias had too much
	DroppedDays int64         // partitions of a day that went whole (Postgres)
	Orphans     int64         // events of which only parts of bodies were left
	FreedBytes  int64         // request and response bytes that went with the events
	StoredBytes int64         // of all aliases now; 0 where nothing bounds it
	LongestHold time.Duration // of the writer by one transaction that deletes
}

// keeper is an alias as retention sees it.
type keeper struct {
	ID   int64  `db:"id"`
	Span *int64 `db:"retention_us"`
	Name string `db:"name"`
}

// span is how long events of the alias stay; 0 = for ever.
func (k *keeper) span(server time.Duration) time.Duration {
	if k.Span != nil {
		return time.Duration(*k.Span) * time.Microsecond
	}
	return server
}

// lateness is how long an event may outlive its retention.
func lateness(span time.Duration) time.Duration { return max(5*time.Second, span/100) }

// plans say when the events of each alias are looked at next.
type plans map[int64]plan

type plan struct {
	span time.Duration
	next time.Time
}

// due tells whether an alias is to be looked at now, and plans the next time.
func (p plans) due(now time.Time, alias int64, span time.Duration) bool {
	last, known := p[alias]
	if known && last.span == span && now.Before(last.next) {
		return false
	}
	p[alias] = plan{span, now.Add(min(retainRare, lateness(span)*2/5))}
	return true
}

// forget drops the plans of aliases that are gone: those that were due long ago.
func (p plans) forget(now time.Time) {
	maps.DeleteFunc(p, func(_ int64, last plan) bool { return now.Sub(last.next) > retainRare })
}

// keepAge removes events by age until ctx ends.
func (s *Store) keepAge(ctx context.Context, jumps leaps) {
	tick := time.NewTicker(retainTick)
	defer tick.Stop()
	next := plans{}
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := s.now()
		if jumps.doubtful(now) {
			continue
		}
		_, err := s.retain(ctx, now, func(id int64, span time.Duration) bool { return next.due(now, id, span) })
		next.forget(now)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing && !s.spool.deserted() {
			s.log.Warn("old events cannot be removed now; tried again each second", "err", err)
		}
		failing = err != nil
	}
}

// Retain removes, as of now, every event that outlived the retention of its alias,
// and gives their number. The serving process does it by itself; a test brings its
// own time.
func (s *Store) Retain(ctx context.Context, now time.Time) (int, error) {
	return s.retain(ctx, now, func(int64, time.Duration) bool { return true })
}

// retain does one pass over the aliases that are due.
func (s *Store) retain(ctx context.Context, now time.Time, due func(alias int64, span time.Duration) bool) (int, error) {
	s.retaining.Lock()
	defer s.retaining.Unlock()
	var aliases []keeper
	if err := s.view(ctx, "read retention of aliases", func(q session) error {
		return q.all(&aliases, `SELECT id, name, retention_us FROM aliases ORDER BY id`)
	}); err != nil {
		return 0, err
	}
	total, first := s.dropDays(ctx, now)
	for i := range aliases {
		a := &aliases[i]
		span := a.span(s.opt.Retention)
		if span <= 0 || !due(a.ID, span) {
			continue
		}
		n, err := s.expire(ctx, a, now, now.Add(-span))
		total += n
		if err != nil {
			if ctx.Err() != nil {
				return total, err
			}
			if first == nil {
				first = fmt.Errorf("alias %s: %w", a.Name, err)
			}
		}
	}
	if total > 0 {
		first = firstError(first, s.vacuum(ctx))
	}
	return total, first
}

func firstError(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// expire removes the events of one alias that came before the time given.
func (s *Store) expire(ctx context.Context, a *keeper, now, before time.Time) (total int, err error) {
	var after relay.ID
	for {
		list, err := s.oldest(ctx, a.ID, after, lowestID(before), now)
		if err != nil || len(list) == 0 {
			if total > 0 {
				s.log.Info("old events removed", "alias", a.Name, "events", total, "before", before.UTC().Format(time.RFC3339))
			}
			return total, err
		}
		after = list[len(list)-1].ID
		done, err := s.remove(ctx, a.ID, list, now, false)
		total += done.events
		s.gone.expired.Add(int64(done.events))
		s.gone.bytes.Add(done.bytes)
		if err != nil {
			return total, err
		}
	}
}

// dropExpired deletes rows of small tables that expired, some at a time.
func (s *Store) dropExpired(ctx context.Context, now time.Time) error {
	for _, t := range []struct {
		table, key, at string
		before         time.Time
		limit          int
	}{
		{`revisions`, `id`, `at`, now.Add(-time.Hour), expiredRows},
		{`idempotency`, `credential, key`, `created_at`, now.Add(-idempotencyLife), 10}, // they hold answers
		{`links`, `hash`, `expires_at`, now, expiredRows},
		{`sessions`, `id`, `expires_at`, now, expiredRows},
		{`kept_names`, `name`, `until`, now, expiredRows},
		{`audit`, `id`, `at`, now.Add(-auditLife), expiredRows},
	} {
		query := fmt.Sprintf(`DELETE FROM %[1]s WHERE (%[2]s) IN (SELECT %[2]s FROM %[1]s WHERE %[3]s < ? LIMIT ?)`, t.table, t.key, t.at)
		for n := int64(t.limit); n == int64(t.limit); {
			err := s.brief(ctx, "drop expired "+t.table, func(c *change, _ int) (err error) {
				n, err = c.exec(query, micros(t.before), t.limit)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return s.trimAudit(ctx, auditRows)
}

// trimAudit deletes the oldest rows of the audit log beyond keep.
func (s *Store) trimAudit(ctx context.Context, keep int) error {
	for n := int64(expiredRows); n == expiredRows; {
		err := s.brief(ctx, "trim the audit log", func(c *change, _ int) (err error) {
			n, err = c.exec(`DELETE FROM audit WHERE id IN (SELECT id FROM audit
				WHERE id <= (SELECT id FROM audit ORDER BY id DESC LIMIT 1 OFFSET ?) ORDER BY id LIMIT ?)`, keep, expiredRows)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
