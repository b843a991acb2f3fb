package people

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"relay"
	"relay/record"
	"relay/store/db"
	"relay/store/seal"
)

// SetAlias changes the settings of an alias with the function edit, for the owner of the alias. It returns the
// error of edit unchanged.
func (s *Store) SetAlias(ctx context.Context, who relay.Actor, name string, edit func(*relay.Settings) error) (a *relay.Alias, err error) {
	set := func() error { return s.setAlias(ctx, who, name, edit, &a) }
	if err = set(); errors.Is(err, seal.ErrNoKey) { // the first secret of the node needs a key
		if err = s.haveKey(ctx); err == nil {
			err = set()
		}
	}
	return a, err
}

func (s *Store) setAlias(ctx context.Context, who relay.Actor, name string, edit func(*relay.Settings) error, changed **relay.Alias) error {
	return s.db.UpdateIf(ctx, Allow(who, relay.ScopeAliasesWrite), "set alias", func(c *db.Tx) error {
		a, err := ownAliasForUpdate(c, who, name)
		if err != nil {
			return err
		}
		set := a.Settings
		if err := edit(&set); err != nil {
			return err
		}
		if err := checkSettings(&set); err != nil {
			return err
		}
		c.Do(`UPDATE aliases SET offline_status = ?, auto_deliver = ?, host_header = ?, forwarded = ?, fresh_connections = ?,
			response_timeout_us = ?, retention_us = ?, paused = ?, handshakes = ?, answers = ? WHERE id = ?`, set.OfflineStatus, db.BoolToInt(set.AutoDeliver), set.HostHeader,
			db.BoolToInt(set.Forwarded), db.BoolToInt(set.FreshConnections), spanArg(set.ResponseTimeout), spanArg(set.Retention), db.BoolToInt(set.Paused),
			strings.Join(set.Handshakes, " "), answersText(set.Answers), a.ID)
		if set.Paused != a.Settings.Paused { // an alias with a tunnel becomes offline or online now
			c.Do(`UPDATE aliases SET last_online_at = ? WHERE id = ? AND EXISTS (SELECT 1 FROM tunnels WHERE alias_id = aliases.id)`, db.Micros(c.Now()), a.ID)
		}
		if set.VerifyToken != a.Settings.VerifyToken {
			if err := s.keepToken(c, who, a, set.VerifyToken); err != nil {
				return err
			}
		}
		c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID})
		if what := record.ChangedSettings(&a.Settings, &set); what != "" {
			_ = Audit(c, who, a.Owner, "alias.set", name, what) // if this fails, the transaction fails with the error; see db.Tx.Do
		}
		*changed, err = oneAlias(c.Query, `al.id = ?`, a.ID)
		return err
	})
}

// checkSettings refuses settings that could break a response. It is the last check before they are stored.
func checkSettings(set *relay.Settings) error {
	switch {
	case set.OfflineStatus < 200 || set.OfflineStatus > 599:
		return Invalid("offlineStatus", set.OfflineStatus, "must be 200 to 599")
	case set.HostHeader == "" || len(set.HostHeader) > 255 || db.StorableText(set.HostHeader) != set.HostHeader:
		return Invalid("hostHeader", set.HostHeader, "must be preserve, rewrite or a host")
	case set.ResponseTimeout != nil && (*set.ResponseTimeout <= 0 || *set.ResponseTimeout > time.Hour):
		return Invalid("responseTimeout", set.ResponseTimeout.String(), "must be more than 0 and at most 1h")
	case set.Retention != nil && *set.Retention <= 0:
		return Invalid("retention", set.Retention.String(), "must be more than 0")
	case record.CheckHandshakes(set.Handshakes) != nil:
		return Invalid("handshakes", nil, record.CheckHandshakes(set.Handshakes).Error())
	case record.CheckAnswers(set.Answers) != nil:
		return Invalid("answers", nil, record.CheckAnswers(set.Answers).Error())
	case strings.ContainsFunc(set.HostHeader, func(r rune) bool { return r <= ' ' || r > '~' }):
		return Invalid("hostHeader", set.HostHeader, "must not contain spaces or control characters")
	}
	return nil
}

// TransferAlias gives an alias to another account. Its owner and the operator may do this, and an admin if
// its owner was removed. Members keep their access, and the old owner loses it. The secrets of senders are
// deleted.
func (s *Store) TransferAlias(ctx context.Context, who relay.Actor, name, user string) (a *relay.Alias, err error) {
	may := cmp.Or(allowAccount(who, relay.ScopeAliasesWrite), s.requireFreshLogin(who))
	err = s.db.UpdateIf(ctx, may, "transfer alias", func(c *db.Tx) error {
		find := func() (*relay.Alias, error) { return transferable(c.Query, who, name) }
		if _, err := find(); err != nil {
			return err
		}
		to, err := accountForUpdate(c, user) // all transactions lock accounts before aliases
		if errors.Is(err, sql.ErrNoRows) {
			return Invalid("user", user, "there is no such account")
		}
		if err != nil {
			return err
		}
		if a, err = AliasForUpdate(c, find); err != nil {
			return err
		}
		if to.ID == a.Owner {
			return nil // the account owns the alias already, so its tokens and shares stay
		}
		if err := s.checkQuota(c, to); err != nil {
			return err
		}
		c.Do(`UPDATE aliases SET owner_id = ? WHERE id = ?`, to.ID, a.ID)
		c.Do(`DELETE FROM members WHERE alias_id = ? AND account_id = ?`, a.ID, to.ID)
		dropAccess(c, a, a.Owner)
		c.Do(`DELETE FROM sender_secrets WHERE alias_id = ?`, a.ID)
		c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID}, relay.Change{Kind: relay.ChangeAccount, Account: a.Owner})
		if err := Audit(c, who, to.ID, "alias.transfer", name, "from "+a.OwnerName+" to "+to.Name); err != nil {
			return err
		}
		a, err = oneAlias(c.Query, `al.id = ?`, a.ID)
		return err
	})
	return a, err
}

// transferable finds an alias that the actor may give away.
func transferable(q db.Query, who relay.Actor, name string) (*relay.Alias, error) {
	a, err := ownAlias(q, who, name)
	if err != nil && who.Admin {
		if unowned, unownedErr := oneAlias(q, `al.name = ? AND own.removed_at > 0`, db.StorableText(name)); unownedErr == nil {
			return unowned, nil
		}
	}
	return a, err
}

func (s *Store) checkQuota(c *db.Tx, owner relay.Account) error {
	var have int
	if err := c.Get(&have, `SELECT COUNT(*) FROM aliases WHERE owner_id = ?`, owner.ID); err != nil {
		return err
	}
	if s.opt.MaxAliases > 0 && have >= s.opt.MaxAliases {
		return relay.Errorf(relay.CodeConflict, "%s has %d aliases already, the most it may have; remove one first", owner.Name, have)
	}
	return nil
}

// dropAccess deletes the access that an account has kept to an alias that it lost: tokens for the alias,
// shares of its events, and saved searches.
func dropAccess(c *db.Tx, a *relay.Alias, account int64) {
	for _, table := range []string{`tokens`, `shares`, `saved_searches`} {
		c.Do(`DELETE FROM `+table+` WHERE alias_id = ? AND account_id = ?`, a.ID, account)
	}
}

// RemoveAlias removes an alias with its events, shares, members and tunnel. Its name is reserved for 30 days.
// The events disappear from all results at once, and are deleted in small batches: in a serving process
// later, otherwise before RemoveAlias returns.
func (s *Store) RemoveAlias(ctx context.Context, who relay.Actor, name string) error {
	may := cmp.Or(Allow(who, relay.ScopeAliasesWrite), s.requireFreshLogin(who))
	err := s.db.UpdateIf(ctx, may, "remove alias", func(c *db.Tx) error {
		a, err := ownAlias(c.Query, who, name)
		if err != nil {
			return err
		}
		now := s.db.Now()
		c.LockText("alias name", a.Name)                     // a transaction that creates the name waits for this one, and then finds the name reserved
		c.Do(`DELETE FROM tunnels WHERE alias_id = ?`, a.ID) // tunnels come before aliases in the order of locks
		if a, err = ownAliasForUpdate(c, who, name); err != nil {
			return err
		}
		c.Do(`INSERT INTO kept_names (name, account_id, until) VALUES (?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET account_id = excluded.account_id, until = excluded.until`, a.Name, a.Owner, db.Micros(now.Add(nameKept)))
		c.Do(`INSERT INTO removed_aliases (alias_id, removed_at) VALUES (?, ?)`, a.ID, db.Micros(now))
		var holders []int64 // accounts of the tokens that end with the alias
		if err := c.All(&holders, `SELECT DISTINCT account_id FROM tokens WHERE alias_id = ?`, a.ID); err != nil {
			return err
		}
		for _, id := range holders {
			c.Announce(relay.Change{Kind: relay.ChangeAccount, Account: id})
		}
		c.Do(`DELETE FROM aliases WHERE id = ?`, a.ID) // deletes the members, shares, tokens and secrets of the alias, too
		c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID})
		return Audit(c, who, a.Owner, "alias.remove", name, "")
	})
	if err != nil {
		return err
	}
	return s.opt.AliasRemoved(ctx)
}

// UnownedAliases lists the aliases whose owner was removed, for admins to transfer.
func (s *Store) UnownedAliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error) {
	if err := AllowAdmin(who); err != nil {
		return nil, err
	}
	return db.ReadRows(ctx, s.db, "read unowned aliases", aliasFields, aliasQuery+`own.removed_at > 0 ORDER BY al.name`)
}

// KeptName returns the account for which the name of a removed alias is reserved, and the end of that
// time; for the operator and admins. user is empty if the account was removed. The error is
// ErrNotFound if the name is not reserved.
func (s *Store) KeptName(ctx context.Context, who relay.Actor, name string) (user string, until time.Time, err error) {
	if err := AllowAdmin(who); err != nil {
		return "", time.Time{}, err
	}
	err = s.db.View(ctx, "look for a reserved name", func(q db.Query) error {
		return q.Row(`SELECT CASE acc.removed_at WHEN 0 THEN acc.name ELSE '' END, k.until FROM kept_names k JOIN accounts acc ON acc.id = k.account_id
			WHERE k.name = ? AND k.until > ?`, db.StorableText(name), db.Micros(s.db.Now())).Scan(&user, (*db.Time)(&until))
	})
	return user, until, err
}
