package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"relay"
	"relay/store/cluster"
	"relay/store/db"
	"relay/store/people"
)

const (
	auditLife   = 400 * 24 * time.Hour
	auditRows   = 2000 // largest number of entries that are kept of one action of one account; older ones are deleted even before auditLife
	expiredRows = 200
)

// DropExpired deletes expired rows of small tables in batches.
func (r *Retention) DropExpired(ctx context.Context, now time.Time) error {
	for _, t := range []struct {
		table, key, at string
		before         time.Time
		limit          int
	}{
		{`revisions`, `id`, `id < (SELECT MAX(id) FROM revisions) AND at`, now.Add(-cluster.RevisionLife), expiredRows}, // the newest one stays, because cluster.PollRevisions looks for it
		{`idempotency`, `credential, key`, `created_at`, now.Add(-people.IdempotencyLife), 10},                          // only ten at once, because the rows contain response bodies
		{`links`, `hash`, `expires_at`, now, expiredRows},
		{`sessions`, `id`, `expires_at`, now, expiredRows},
		{`enrolments`, `hash`, `expires_at`, now.Add(-time.Hour), expiredRows},
		{`refused_forwards`, `account_id, bind, code`, `refused_at`, now.Add(-people.RefusedLife), expiredRows},
		{`kept_names`, `name`, `until`, now, expiredRows},
		{`audit`, `id`, `at`, now.Add(-auditLife), expiredRows},
		{`spool_marks`, `spool`, `moved_at`, now.Add(-orphanAgeSpool), expiredRows}, // marks of a data dir that is no longer served, or that a kill has left
	} {
		query := fmt.Sprintf(`DELETE FROM %[1]s WHERE (%[2]s) IN (SELECT %[2]s FROM %[1]s WHERE %[3]s < ? ORDER BY %[2]s LIMIT ?)`, t.table, t.key, t.at)
		if err := r.deleteInBatches(ctx, t.table, t.limit, query, db.Micros(t.before), t.limit); err != nil {
			return err
		}
	}
	// When a node of the previous version transfers an alias, it leaves the secrets of the old owner behind.
	if err := r.deleteInBatches(ctx, "secrets", expiredRows, `DELETE FROM sender_secrets WHERE id IN (SELECT x.id FROM sender_secrets x WHERE NOT EXISTS (
			SELECT 1 FROM aliases al WHERE al.id = x.alias_id AND al.owner_id = x.owner_id) ORDER BY x.id LIMIT ?)`, expiredRows); err != nil {
		return err
	}
	return r.trimAudit(ctx, auditRows)
}

// trimAudit deletes the oldest entries of the audit log. It keeps the newest keep entries of each action of each
// account. An account therefore cannot push out entries of other accounts or, by repeating one action, entries
// of its other actions.
func (r *Retention) trimAudit(ctx context.Context, keep int) error {
	type share struct {
		account int64
		action  string
	}
	full, err := db.ReadRows(ctx, r.db, "count audit", func(r *share) []any { return []any{&r.account, &r.action} },
		`SELECT account_id, action FROM audit GROUP BY account_id, action HAVING COUNT(*) > ?`, keep)
	if err != nil {
		return err
	}
	for _, f := range full {
		var last int64
		err := r.db.View(ctx, "count audit", func(q db.Query) error {
			return q.Get(&last, `SELECT id FROM audit WHERE account_id = ? AND action = ? ORDER BY id DESC LIMIT 1 OFFSET ?`, f.account, f.action, keep)
		})
		if errors.Is(err, relay.ErrNotFound) {
			continue // another node has deleted the entries meanwhile
		}
		if err != nil {
			return err
		}
		if err := r.deleteInBatches(ctx, "audit", expiredRows, `DELETE FROM audit WHERE id IN (SELECT id FROM audit
			WHERE account_id = ? AND action = ? AND id <= ? ORDER BY id LIMIT ?)`, f.account, f.action, last, expiredRows); err != nil {
			return err
		}
	}
	return nil
}

// deleteInBatches repeats a statement until it deletes fewer rows than limit.
func (r *Retention) deleteInBatches(ctx context.Context, table string, limit int, query string, args ...any) error {
	for n := int64(limit); n == int64(limit); {
		err := r.pacedUpdate(ctx, "drop expired "+table, func(c *db.Tx, _ int) (err error) {
			n, err = c.Exec(query, args...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
