package people

import (
	"context"
	"fmt"
	"math"
	"time"

	"relay"
	"relay/store/db"
)

// Audit stores an audit entry in the transaction of the operation. subject is the account that the entry is
// about; this account may read the entry too.
func Audit(c *db.Tx, who relay.Actor, subject int64, action, target, detail string) error {
	return auditAt(c, c.Now(), who, subject, action, target, detail)
}

func auditAt(c *db.Tx, at time.Time, who relay.Actor, subject int64, action, target, detail string) error {
	e := entryOf(at, who, action, target, detail)
	c.Do(`INSERT INTO audit (at, actor, via, account_id, subject_id, action, target, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		db.Micros(at), e.Actor, e.Via, who.Account, subject, action, e.Target, e.Detail)
	c.Audited = append(c.Audited, e)
	return c.Err
}

// entryOf returns an entry of the audit log, with texts that both engines store.
func entryOf(at time.Time, who relay.Actor, action, target, detail string) relay.AuditEntry {
	return relay.AuditEntry{
		At: at, Actor: db.StorableText(who.String()), Via: db.StorableText(who.Via), Action: action,
		Target: db.StorableText(target), Detail: db.StorableText(detail),
	}
}

// AuditOfAlias is Audit for an operation that concerns the owner of an alias. It adds nothing if the alias is gone.
func AuditOfAlias(c *db.Tx, who relay.Actor, alias int64, action, target, detail string) error {
	e := entryOf(c.Now(), who, action, target, detail)
	n, err := c.Exec(`INSERT INTO audit (at, actor, via, account_id, subject_id, action, target, detail)
		SELECT CAST(? AS BIGINT), ?, ?, CAST(? AS BIGINT), owner_id, ?, ?, ? FROM aliases WHERE id = ?`,
		db.Micros(e.At), e.Actor, e.Via, who.Account, action, e.Target, e.Detail, alias)
	if n > 0 {
		c.Audited = append(c.Audited, e)
	}
	return err
}

const (
	loginInterval    = time.Hour
	takeoverInterval = time.Minute
)

// NoteLogin records a login by SSH key in the audit log, at most once an hour for each key. It does not
// block; the entry is written within seconds. remote is the source address.
func (s *Store) NoteLogin(who relay.Actor, remote string) {
	at := s.db.Now()
	s.late.putOnce("login "+who.Credential, loginInterval, func(c *db.Tx) error {
		return auditAt(c, at, who, who.Account, "login.ssh", who.Credential, "from "+truncateName(remote))
	})
}

// NoteRefusedLogin records in the audit log that unknown keys were refused, at most once an hour for
// the same keys. It does not block; the entry is written within seconds.
func (s *Store) NoteRefusedLogin(keys, detail string) {
	at := s.db.Now()
	s.late.putOnce("refused "+keys, loginInterval, func(c *db.Tx) error {
		return auditAt(c, at, relay.Actor{Kind: relay.ActorSSH, Name: "unknown"}, 0, "login.refused", keys, detail)
	})
}

// NoteTakeover records in the audit log that a tunnel took an alias from another one, at
// most once a minute for each alias. It does not block; the entry is written within seconds.
func (s *Store) NoteTakeover(alias *relay.Alias, from, by relay.TunnelInfo) {
	at, who := s.db.Now(), relay.Actor{Kind: relay.ActorSSH, Account: by.Account, Name: by.User}
	s.late.putOnce("takeover "+alias.Name, takeoverInterval, func(c *db.Tx) error {
		return auditAt(c, at, who, alias.Owner, "alias.takeover", alias.Name,
			fmt.Sprintf("from %s at %s, by %s at %s", from.User, from.Remote, by.User, by.Remote))
	})
}

// auditPage is the number of entries that one statement reads.
const auditPage = 1000

// Audit lists audit entries, the newest first. An admin gets all of them, and any other actor those by or
// about its account. limit 0 = 100.
func (s *Store) Audit(ctx context.Context, who relay.Actor, limit int) ([]relay.AuditEntry, error) {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = 100
	}
	fields := func(e *relay.AuditEntry) []any {
		return []any{&e.ID, (*db.Time)(&e.At), &e.Actor, &e.Via, &e.Action, &e.Target, &e.Detail}
	}
	list := []relay.AuditEntry{}
	for before := int64(math.MaxInt64); ; before = list[len(list)-1].ID {
		size := min(limit-len(list), auditPage)
		page, err := db.ReadRows(ctx, s.db, "read audit", fields, `SELECT id, at, actor, via, action, target, detail FROM audit
			WHERE id < ? AND (account_id = ? OR subject_id = ? OR 1 = ?) ORDER BY id DESC LIMIT ?`,
			before, who.Account, who.Account, db.BoolToInt(who.Admin), size)
		if err != nil {
			return nil, err
		}
		if list = append(list, page...); len(page) < size || len(list) == limit {
			return list, nil
		}
	}
}
