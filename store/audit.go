package store

import (
	"context"
	"time"

	"relay"
)

// audit keeps who did what, in the transaction that does it. subject is the account
// that it is about, which may read the entry too.
func (c *change) audit(who relay.Actor, subject int64, action, target, detail string) error {
	_, err := c.exec(`INSERT INTO audit (at, actor, account_id, subject_id, action, target, detail) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		micros(time.Now()), plain(who.String()), who.Account, subject, action, plain(target), plain(detail))
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
	var rows []struct {
		ID     int64  `db:"id"`
		At     int64  `db:"at"`
		Actor  string `db:"actor"`
		Action string `db:"action"`
		Target string `db:"target"`
		Detail string `db:"detail"`
	}
	err := s.view(ctx, "read audit", func(q session) error {
		return q.all(&rows, `SELECT id, at, actor, action, target, detail FROM audit
			WHERE account_id = ? OR subject_id = ? OR 1 = ? ORDER BY id DESC LIMIT ?`,
			who.Account, who.Account, flag(who.Admin), min(limit, maxAudit))
	})
	list := make([]relay.AuditEntry, len(rows))
	for i, r := range rows {
		list[i] = relay.AuditEntry{ID: r.ID, At: moment(r.At), Actor: r.Actor, Action: r.Action, Target: r.Target, Detail: r.Detail}
	}
	return list, err
}
