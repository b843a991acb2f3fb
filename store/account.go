package store

import (
	"context"
	"regexp"

	"relay"
)

const accountQuery = `SELECT id, name, admin, created_at FROM accounts WHERE removed_at = 0 AND `

func accountFields(a *relay.Account) []any {
	return []any{&a.ID, &a.Name, &a.Admin, (*micro)(&a.CreatedAt)}
}

// account returns the account with this name, unless it was removed.
func (q session) account(name string) (relay.Account, error) {
	return rowOf(q, accountFields, accountQuery+`name = ?`, storableText(name))
}

// subject returns the account that an operation applies to: the one named user, or the actor's
// own if user is "". Only admins and the operator may act for another account.
func (q session) subject(who relay.Actor, user string) (relay.Account, error) {
	if user == "" && who.Kind == relay.ActorSystem {
		return relay.Account{}, invalid("user", user, "say which account")
	}
	if user == "" || user == who.AccountName && who.Account != 0 {
		return rowOf(q, accountFields, accountQuery+`id = ?`, who.Account)
	}
	if !who.Admin {
		return relay.Account{}, relay.Errorf(relay.CodeForbidden, "only an admin may do this for another account")
	}
	return q.account(user)
}

// holdAccount keeps an account from being removed until the transaction ends, so that its removal
// finds what the transaction adds. It fails when the account was removed since it was read. It
// comes before locks of rows that RemoveAccount deletes.
func (c *writeTx) holdAccount(id int64) error {
	if !c.d.isPostgres { // there is one writer
		return nil
	}
	var one int
	return c.get(&one, `SELECT 1 FROM accounts WHERE id = ? AND removed_at = 0 FOR SHARE`, id)
}

// AccountByName returns the account with this name, or ErrNotFound. It checks no permission,
// because only the server itself and operator commands call it.
func (s *Store) AccountByName(ctx context.Context, name string) (relay.Account, error) {
	return read(ctx, s, "read account", func(q session) (relay.Account, error) { return q.account(name) })
}

// accountName is what an account may be called: the login names that are common on Unix
// systems, first.last included.
var accountName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// CreateAccount creates an account. Only an admin may do this.
func (s *Store) CreateAccount(ctx context.Context, who relay.Actor, name string, admin bool) (a relay.Account, err error) {
	may := allowAdmin(who)
	if may == nil && !accountName.MatchString(name) {
		may = invalid("name", name, "an account name is 1 to 63 lower-case letters, digits and inner . _ -")
	}
	err = s.updateIf(ctx, may, "create account", func(c *writeTx) (err error) {
		taken := relay.Errorf(relay.CodeConflict, "there is an account %s already", name)
		if err := c.requireRow(taken, `INSERT INTO accounts (name, admin, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
			name, boolToInt(admin), micros(s.now())); err != nil {
			return err
		}
		if a, err = c.account(name); err != nil {
			return err
		}
		return c.audit(who, a.ID, "user.add", name, map[bool]string{true: "admin"}[admin])
	})
	return a, err
}

// Accounts lists all accounts for an admin. Any other actor sees only its own account.
func (s *Store) Accounts(ctx context.Context, who relay.Actor) ([]relay.Account, error) {
	return readRows(ctx, s, "read accounts", accountFields, accountQuery+`(id = ? OR 1 = ?) ORDER BY name`, who.Account, boolToInt(who.Admin))
}

// RemoveAccount removes an account with its keys, tokens, sessions, links, shares, saved
// searches and memberships, and ends its tunnels and streams. Its aliases stay, so that an admin
// can transfer them.
func (s *Store) RemoveAccount(ctx context.Context, who relay.Actor, name string) error {
	return s.updateIf(ctx, allowAdmin(who), "remove account", func(c *writeTx) error {
		a, err := c.account(name)
		if err != nil {
			return err
		}
		// First the account: who adds a key or a member meanwhile holds it, or waits and finds it removed.
		if err := c.requireRow(relay.ErrNotFound, `UPDATE accounts SET removed_at = ?, admin = 0 WHERE id = ? AND removed_at = 0`, micros(c.now()), a.ID); err != nil {
			return err
		}
		for _, table := range []string{`keys`, `tokens`, `sessions`, `links`, `members`, `shares`, `saved_searches`, `refused_forwards`} {
			c.do(`DELETE FROM `+table+` WHERE account_id = ?`, a.ID)
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
	return s.updateIf(ctx, allow(who, relay.ScopeAliasesWrite), "add member", func(c *writeTx) error {
		if _, err := c.ownAlias(who, alias); err != nil {
			return err
		}
		m, err := c.account(user)
		if err != nil {
			return err
		}
		if err := c.holdAccount(m.ID); err != nil {
			return err
		}
		a, err := c.ownAliasForUpdate(who, alias)
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
	return s.updateIf(ctx, allow(who, relay.ScopeAliasesWrite), "remove member", func(c *writeTx) error {
		find := c.ownAlias
		if user == who.AccountName { // a member may leave
			find = c.alias
		}
		a, err := c.aliasForUpdate(func() (*relay.Alias, error) { return find(who, alias) })
		if err != nil {
			return err
		}
		m, err := c.account(user)
		if err != nil {
			return err
		}
		if err := c.requireRow(relay.ErrNotFound, `DELETE FROM members WHERE alias_id = ? AND account_id = ?`, a.ID, m.ID); err != nil {
			return err
		}
		c.dropAccess(a, m.ID)
		c.announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID}, relay.Change{Kind: relay.ChangeAccount, Account: m.ID})
		return c.audit(who, m.ID, "member.remove", alias, user)
	})
}
