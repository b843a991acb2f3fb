package store

import (
	"context"
	"errors"

	"relay"
)

type accountRow struct {
	ID        int64  `db:"id"`
	Name      string `db:"name"`
	Admin     int    `db:"admin"`
	CreatedAt int64  `db:"created_at"`
}

func (r *accountRow) account() relay.Account {
	return relay.Account{ID: r.ID, Name: r.Name, Admin: r.Admin != 0, CreatedAt: fromMicros(r.CreatedAt)}
}

// account returns the account with this name, unless it was removed.
func (q session) account(name string) (relay.Account, error) {
	var row accountRow
	err := q.get(&row, `SELECT id, name, admin, created_at FROM accounts WHERE name = ? AND removed_at = 0`, storableText(name))
	return row.account(), err
}

// subject returns the account that an operation applies to: the one named user, or the actor's
// own if user is "". Only admins and the operator may act for another account.
func (q session) subject(who relay.Actor, user string) (relay.Account, error) {
	if user == "" && who.Kind == relay.ActorSystem {
		return relay.Account{}, invalid("user", user, "say which account")
	}
	var row accountRow
	if user == "" || user == who.AccountName && who.Account != 0 {
		err := q.get(&row, `SELECT id, name, admin, created_at FROM accounts WHERE id = ? AND removed_at = 0`, who.Account)
		return row.account(), err
	}
	if !who.Admin {
		return relay.Account{}, relay.Errorf(relay.CodeForbidden, "only an admin may do this for another account")
	}
	return q.account(user)
}

// AccountByName returns the account with this name, or ErrNotFound. It checks no permission,
// because only the server itself and operator commands call it.
func (s *Store) AccountByName(ctx context.Context, name string) (a relay.Account, err error) {
	err = s.view(ctx, "read account", func(q session) error {
		a, err = q.account(name)
		return err
	})
	return a, err
}

// CreateAccount creates an account. Only an admin may do this.
func (s *Store) CreateAccount(ctx context.Context, who relay.Actor, name string, admin bool) (a relay.Account, err error) {
	if err := allowAdmin(who); err != nil {
		return a, err
	}
	if !validAccountName(name) {
		return a, invalid("name", name, "an account name is 1 to 63 lower-case letters, digits and inner . _ -")
	}
	err = s.update(ctx, "create account", func(c *writeTx) error {
		now := s.now()
		var ids []int64
		if err := c.all(&ids, `INSERT INTO accounts (name, admin, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING id`,
			name, boolToInt(admin), micros(now)); err != nil {
			return err
		}
		if len(ids) == 0 {
			return relay.Errorf(relay.CodeConflict, "there is an account %s already", name)
		}
		a = relay.Account{ID: ids[0], Name: name, Admin: admin, CreatedAt: fromMicros(micros(now))}
		detail := ""
		if admin {
			detail = "admin"
		}
		return c.audit(who, a.ID, "user.add", name, detail)
	})
	return a, err
}

// validAccountName reports whether an account may have this name. It accepts the login names
// that are common on Unix systems, first.last included.
func validAccountName(name string) bool {
	if len(name) < 1 || len(name) > 63 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		inner := c == '.' || c == '_' || c == '-'
		if !alnum && (!inner || i == 0 || i == len(name)-1) {
			return false
		}
	}
	return true
}

// Accounts lists all accounts for an admin. Any other actor sees only its own account.
func (s *Store) Accounts(ctx context.Context, who relay.Actor) (list []relay.Account, err error) {
	err = s.view(ctx, "read accounts", func(q session) error {
		list, err = rowsAs(q, (*accountRow).account, `SELECT id, name, admin, created_at FROM accounts WHERE removed_at = 0 AND (id = ? OR 1 = ?) ORDER BY name`,
			who.Account, boolToInt(who.Admin))
		return err
	})
	return list, err
}

// RemoveAccount removes an account with its keys, tokens, sessions, links, shares, saved
// searches and memberships, and ends its tunnels and streams. Its aliases stay, so that an admin
// can transfer them.
func (s *Store) RemoveAccount(ctx context.Context, who relay.Actor, name string) error {
	if err := allowAdmin(who); err != nil {
		return err
	}
	return s.update(ctx, "remove account", func(c *writeTx) error {
		a, err := c.account(name)
		if err != nil {
			return err
		}
		for _, table := range []string{`keys`, `tokens`, `sessions`, `links`, `members`, `shares`, `saved_searches`, `refused_forwards`} {
			if _, err := c.exec(`DELETE FROM `+table+` WHERE account_id = ?`, a.ID); err != nil {
				return err
			}
		}
		if _, err := c.exec(`UPDATE accounts SET removed_at = ?, admin = 0 WHERE id = ?`, micros(c.now()), a.ID); err != nil {
			return err
		}
		var aliases []int64
		if err := c.all(&aliases, `SELECT id FROM aliases WHERE owner_id = ?`, a.ID); err != nil {
			return err
		}
		c.announce(relay.Change{Kind: relay.ChangeAccount, Account: a.ID})
		for _, id := range aliases {
			c.announce(relay.Change{Kind: relay.ChangeAlias, Alias: id})
		}
		return c.audit(who, a.ID, "user.remove", name, "")
	})
}

// Members lists the accounts that may use an alias besides its owner.
func (s *Store) Members(ctx context.Context, who relay.Actor, alias string) (names []string, err error) {
	err = s.view(ctx, "read members", func(q session) error {
		a, err := q.alias(who, alias)
		if err != nil {
			return err
		}
		names = []string{}
		return q.all(&names, `SELECT o.name FROM members m JOIN accounts o ON o.id = m.account_id WHERE m.alias_id = ? ORDER BY o.name`, a.ID)
	})
	return names, err
}

// AddMember lets another account attach to an alias, see its events and replay them. Only the
// owner may do this. Adding a member twice is no error.
func (s *Store) AddMember(ctx context.Context, who relay.Actor, alias, user string) error {
	if err := allow(who, relay.ScopeAliasesWrite); err != nil {
		return err
	}
	return s.update(ctx, "add member", func(c *writeTx) error {
		a, err := c.ownAlias(who, alias)
		if err != nil {
			return err
		}
		m, err := c.account(user)
		if err != nil {
			return err
		}
		if m.ID == a.Owner {
			return relay.Errorf(relay.CodeConflict, "%s owns %s", user, alias)
		}
		n, err := c.exec(`INSERT INTO members (alias_id, account_id) VALUES (?, ?) ON CONFLICT DO NOTHING`, a.ID, m.ID)
		if err != nil || n == 0 {
			return err
		}
		c.announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID, Account: m.ID})
		return c.audit(who, m.ID, "member.add", alias, user)
	})
}

// RemoveMember ends the access of a member to an alias, with its tunnel, streams and shares of
// that alias. The owner or the member itself may do this. It returns ErrNotFound if the account
// is no member.
func (s *Store) RemoveMember(ctx context.Context, who relay.Actor, alias, user string) error {
	if err := allow(who, relay.ScopeAliasesWrite); err != nil {
		return err
	}
	return s.update(ctx, "remove member", func(c *writeTx) error {
		a, err := c.ownAlias(who, alias)
		var refused *relay.Error
		if errors.As(err, &refused) && refused.Code == relay.CodeForbidden && user == who.AccountName {
			a, err = c.alias(who, alias)
		}
		if err != nil {
			return err
		}
		m, err := c.account(user)
		if err != nil {
			return err
		}
		n, err := c.exec(`DELETE FROM members WHERE alias_id = ? AND account_id = ?`, a.ID, m.ID)
		if err != nil {
			return err
		}
		if n == 0 {
			return relay.ErrNotFound
		}
		if err := c.dropAccess(a, m.ID); err != nil {
			return err
		}
		c.announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID}, relay.Change{Kind: relay.ChangeAccount, Account: m.ID})
		return c.audit(who, m.ID, "member.remove", alias, user)
	})
}
