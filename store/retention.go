package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"relay"
	"relay/store/cluster"
	"relay/store/db"
	"relay/store/events"
	"relay/store/people"
)

// Intervals of retention. Each alias is checked often enough that an event is deleted at
// most max(5 s, retention/100) after it expired.
const (
	maxRetentionInterval = time.Hour
	auditLife            = 400 * 24 * time.Hour
	auditRows            = 2000 // entries of one action of one account that are kept, whatever their age
	expiredRows          = 200
)

// retentionCounts counts what retention deleted since Serve.
type retentionCounts struct {
	expired atomic.Int64 // events removed by age
	evicted atomic.Int64 // events removed because their alias or its owner exceeded its storage limit
	days    atomic.Int64 // days whose partitions were dropped as a whole (Postgres)
	orphans atomic.Int64 // bodies without an event that were deleted
	bytes   atomic.Int64 // request and response bytes deleted with the events
}

// retentionSchedule says when the events of each alias are checked next.
type retentionSchedule map[int64]retentionRun

type retentionRun struct {
	span time.Duration
	next time.Time
}

// due reports whether an alias has to be checked now, and schedules its next check.
func (p retentionSchedule) due(now time.Time, alias int64, span time.Duration) bool {
	last, known := p[alias]
	if known && last.span == span && now.Before(last.next) {
		return false
	}
	p[alias] = retentionRun{span, now.Add(min(maxRetentionInterval, max(5*time.Second, span/100)*2/5))}
	return true
}

// forget drops the entries of removed aliases: those whose check is long overdue.
func (p retentionSchedule) forget(now time.Time) {
	maps.DeleteFunc(p, func(_ int64, last retentionRun) bool { return now.Sub(last.next) > maxRetentionInterval })
}

// retain removes the events that are older than the retention of their alias at the time now,
// of the aliases that are due, and returns how many.
func (s *Store) retain(ctx context.Context, now time.Time, due func(alias int64, span time.Duration) bool) (int, error) {
	s.retainMu.Lock()
	defer s.retainMu.Unlock()
	var aliases []struct {
		ID   int64
		Name string
		Span int64 // for which its events are kept, in µs; 0 = for ever
	}
	if err := s.db.View(ctx, "read retention of aliases", func(q db.Query) error {
		return q.All(&aliases, `SELECT id, name, COALESCE(retention_us, ?) AS span FROM aliases ORDER BY id`, s.opt.Retention.Microseconds())
	}); err != nil {
		return 0, err
	}
	total, first := s.dropDays(ctx, now)
	for _, a := range aliases {
		span := time.Duration(a.Span) * time.Microsecond
		if span <= 0 || !due(a.ID, span) {
			continue
		}
		before := now.Add(-span)
		n, err := s.removeOldest(ctx, holder{id: a.ID}, events.LowestID(before), now, nil, &s.retentionCounts.expired)
		if n > 0 {
			s.log.Info("old events removed", "alias", a.Name, "events", n, "before", before.UTC().Format(time.RFC3339))
		}
		total += n
		if ctx.Err() != nil {
			return total, err
		}
		if err != nil && first == nil {
			first = fmt.Errorf("alias %s: %w", a.Name, err)
		}
	}
	if total > 0 {
		first = cmp.Or(first, s.vacuum(ctx))
	}
	return total, first
}

// dropExpired deletes expired rows of small tables in batches.
func (s *Store) dropExpired(ctx context.Context, now time.Time) error {
	for _, t := range []struct {
		table, key, at string
		before         time.Time
		limit          int
	}{
		{`revisions`, `id`, `id < (SELECT MAX(id) FROM revisions) AND at`, now.Add(-cluster.RevisionLife), expiredRows}, // the newest shows that none is lost
		{`idempotency`, `credential, key`, `created_at`, now.Add(-people.IdempotencyLife), 10},                          // they hold answers
		{`links`, `hash`, `expires_at`, now, expiredRows},
		{`sessions`, `id`, `expires_at`, now, expiredRows},
		{`enrolments`, `hash`, `expires_at`, now.Add(-time.Hour), expiredRows},
		{`refused_forwards`, `account_id, bind, code`, `refused_at`, now.Add(-people.RefusedLife), expiredRows},
		{`kept_names`, `name`, `until`, now, expiredRows},
		{`audit`, `id`, `at`, now.Add(-auditLife), expiredRows},
		{`spool_marks`, `spool`, `moved_at`, now.Add(-orphanAgeSpool), expiredRows}, // of a data dir that was never served again, or left by a kill
	} {
		query := fmt.Sprintf(`DELETE FROM %[1]s WHERE (%[2]s) IN (SELECT %[2]s FROM %[1]s WHERE %[3]s < ? ORDER BY %[2]s LIMIT ?)`, t.table, t.key, t.at)
		if err := s.deleteInBatches(ctx, t.table, t.limit, query, db.Micros(t.before), t.limit); err != nil {
			return err
		}
	}
	// A node of the version before leaves them to an account that an alias is transferred from.
	if err := s.deleteInBatches(ctx, "secrets", expiredRows, `DELETE FROM sender_secrets WHERE id IN (SELECT x.id FROM sender_secrets x WHERE NOT EXISTS (
			SELECT 1 FROM aliases al WHERE al.id = x.alias_id AND al.owner_id = x.owner_id) ORDER BY x.id LIMIT ?)`, expiredRows); err != nil {
		return err
	}
	return s.trimAudit(ctx, auditRows)
}

// trimAudit deletes the oldest entries of the audit log beyond keep of one action of one account: nobody
// can push out what others did, nor, by doing one thing again and again, what else the account did.
func (s *Store) trimAudit(ctx context.Context, keep int) error {
	type share struct {
		account int64
		action  string
	}
	full, err := db.ReadRows(ctx, s.db, "count audit", func(r *share) []any { return []any{&r.account, &r.action} },
		`SELECT account_id, action FROM audit GROUP BY account_id, action HAVING COUNT(*) > ?`, keep)
	if err != nil {
		return err
	}
	for _, f := range full {
		var last int64 // of those that go
		err := s.db.View(ctx, "count audit", func(q db.Query) error {
			return q.Get(&last, `SELECT id FROM audit WHERE account_id = ? AND action = ? ORDER BY id DESC LIMIT 1 OFFSET ?`, f.account, f.action, keep)
		})
		if errors.Is(err, relay.ErrNotFound) {
			continue // another node has deleted them meanwhile
		}
		if err != nil {
			return err
		}
		if err := s.deleteInBatches(ctx, "audit", expiredRows, `DELETE FROM audit WHERE id IN (SELECT id FROM audit
			WHERE account_id = ? AND action = ? AND id <= ? ORDER BY id LIMIT ?)`, f.account, f.action, last, expiredRows); err != nil {
			return err
		}
	}
	return nil
}

// deleteInBatches executes a statement until it deletes fewer rows than limit.
func (s *Store) deleteInBatches(ctx context.Context, table string, limit int, query string, args ...any) error {
	for n := int64(limit); n == int64(limit); {
		err := s.pacedUpdate(ctx, "drop expired "+table, func(c *db.Tx, _ int) (err error) {
			n, err = c.Exec(query, args...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
