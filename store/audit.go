package store

import (
	"context"
	"time"

	"relay"
)

// audit stores an audit row in the transaction of the operation. subject is the account
// that it is about, which may read the entry too.
func (c *writeTx) audit(who relay.Actor, subject int64, action, target, detail string) error {
	return c.auditAt(c.now(), who, subject, action, target, detail)
}

func (c *writeTx) auditAt(at time.Time, who relay.Actor, subject int64, action, target, detail string) error {
	_, err := c.exec(`INSERT INTO audit (at, actor, account_id, subject_id, action, target, detail) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		micros(at), storableText(who.String()), who.Account, subject, action, storableText(target), storableText(detail))
	return err
}

// auditOfAlias is audit for what concerns the owner of an alias.
func (c *writeTx) auditOfAlias(who relay.Actor, alias int64, action, target, detail string) error {
	_, err := c.exec(`INSERT INTO audit (at, actor, account_id, subject_id, action, target, detail)
		SELECT CAST(? AS BIGINT), ?, CAST(? AS BIGINT), owner_id, ?, ?, ? FROM aliases WHERE id = ?`,
		micros(c.now()), storableText(who.String()), who.Account, action, storableText(target), storableText(detail), alias)
	return err
}

const maxAudit = 1000

// Audit lists the newest entries first: those by or about the actor's account, all
// for admins. limit 0 = 100, at most 1000.
func (s *Store) Audit(ctx context.Context, who relay.Actor, limit int) ([]relay.AuditEntry, error) {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = 100
	}
	var list []relay.AuditEntry
	err := s.view(ctx, "read audit", func(q session) (err error) {
		list, err = rowsAs(q, (*auditRow).entry, `SELECT id, at, actor, action, target, detail FROM audit
			WHERE account_id = ? OR subject_id = ? OR 1 = ? ORDER BY id DESC LIMIT ?`,
			who.Account, who.Account, boolToInt(who.Admin), min(limit, maxAudit))
		return err
	})
	return list, err
}

type auditRow struct {
	ID     int64  `db:"id"`
	At     int64  `db:"at"`
	Actor  string `db:"actor"`
	Action string `db:"action"`
	Target string `db:"target"`
	Detail string `db:"detail"`
}

func (r *auditRow) entry() relay.AuditEntry {
	return relay.AuditEntry{ID: r.ID, At: fromMicros(r.At), Actor: r.Actor, Action: r.Action, Target: r.Target, Detail: r.Detail}
}
