package people

import (
	"context"
	"regexp"
	"strconv"

	"relay"
	"relay/store/db"
)

const accountQuery = `SELECT id, name, admin, created_at, max_storage, max_queue FROM accounts WHERE removed_at = 0 AND `

func accountFields(a *relay.Account) []any {
	return []any{&a.ID, &a.Name, &a.Admin, (*db.Time)(&a.CreatedAt), &a.MaxStorage, &a.MaxQueue}
}

// findAccount returns the account with this name, unless it was removed.
func findAccount(q db.Query, name string) (relay.Account, error) {
	return db.RowOf(q, accountFields, accountQuery+`name = ?`, db.StorableText(name))
}

// subjectOf returns the account that an operation applies to. The parameter user is its name; "" means the
// actor's own account. Only admins and the operator may act for another account. The operator has no account,
// so user must not be "".
func subjectOf(q db.Query, who relay.Actor, user string) (relay.Account, error) {
	if user == "" && who.Kind == relay.ActorSystem {
		return relay.Account{}, Invalid("user", user, "say which account")
	}
	if user == "" || user == who.AccountName && who.Account != 0 {
		return db.RowOf(q, accountFields, accountQuery+`id = ?`, who.Account)
	}
	if !who.Admin {
		return relay.Account{}, relay.Errorf(relay.CodeForbidden, "only an admin may do this for another account")
	}
	return findAccount(q, user)
}

// HoldAccount keeps an account from being removed until the transaction ends. A later removal also deletes the
// rows that the transaction adds. HoldAccount fails if the account was removed since it was read. Call it before
// the transaction locks rows that RemoveAccount deletes.
func HoldAccount(c *db.Tx, id int64) error {
	return c.Hold(`SELECT 1 FROM accounts WHERE id = ? AND removed_at = 0`, id)
}

// AccountByName returns the account with this name, or ErrNotFound. It checks no rights, because only the
// server itself and operator commands call it.
func (s *Store) AccountByName(ctx context.Context, name string) (relay.Account, error) {
	return db.Read(ctx, s.db, "read account", func(q db.Query) (relay.Account, error) { return findAccount(q, name) })
}

// accountName matches valid account names: the common login names of Unix systems, including first.last.
var accountName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// CreateAccount creates an account. Only an admin may do this.
func (s *Store) CreateAccount(ctx context.Context, who relay.Actor, name string, admin bool) (a relay.Account, err error) {
	may := AllowAdmin(who)
	if may == nil && !accountName.MatchString(name) {
		may = Invalid("name", name, "an account name is 1 to 63 lower-case letters, digits and inner . _ -")
	}
	err = s.db.UpdateIf(ctx, may, "create account", func(c *db.Tx) (err error) {
		taken := relay.Errorf(relay.CodeConflict, "there is an account %s already", name)
		if err := c.RequireRow(taken, `INSERT INTO accounts (name, admin, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
			name, db.BoolToInt(admin), db.Micros(s.db.Now())); err != nil {
			return err
		}
		if a, err = findAccount(c.Query, name); err != nil {
			return err
		}
		return Audit(c, who, a.ID, "user.add", name, map[bool]string{true: "admin"}[admin])
	})
	return a, err
}

// Accounts lists all accounts for an admin. Any other actor sees only its own account.
func (s *Store) Accounts(ctx context.Context, who relay.Actor) ([]relay.Account, error) {
	return db.ReadRows(ctx, s.db, "read accounts", accountFields, accountQuery+`(id = ? OR 1 = ?) ORDER BY name`, who.Account, db.BoolToInt(who.Admin))
}

// accountLimits are the limits that an account may have instead of the server's.
var accountLimits = []struct {
	key, setting, column string
	text                 func(int64) string
}{
	{"maxAccountStorage", "max-account-storage", `max_storage`, relay.FormatBytes},
	{"maxAccountQueue", "max-account-queue", `max_queue`, func(n int64) string { return strconv.FormatInt(n, 10) }},
}

// SetAccount changes the given limits of an account, by their keys in the API: either all of them or none. A
// nil limit returns to the server's limit. Only an admin may do this.
func (s *Store) SetAccount(ctx context.Context, who relay.Actor, name string, limits map[string]*int64) (a relay.Account, err error) {
	may := AllowAdmin(who)
	for _, of := range accountLimits {
		if limit := limits[of.key]; may == nil && limit != nil && *limit < 0 {
			may = Invalid(of.key, *limit, "must be 0 or more")
		}
	}
	err = s.db.UpdateIf(ctx, may, "set account", func(c *db.Tx) error {
		if a, err = findAccount(c.Query, name); err != nil {
			return err
		}
		for _, of := range accountLimits {
			limit, given := limits[of.key]
			if !given {
				continue
			}
			if err := c.RequireRow(relay.ErrNotFound, `UPDATE accounts SET `+of.column+` = ? WHERE id = ? AND removed_at = 0`, limit, a.ID); err != nil {
				return err
			}
			text := "the server's"
			if limit != nil {
				if text = "off"; *limit > 0 {
					text = of.text(*limit)
				}
			}
			if err := Audit(c, who, a.ID, "user.set", name, of.setting+" "+text); err != nil {
				return err
			}
		}
		a, err = findAccount(c.Query, name)
		c.Announce(relay.Change{Kind: relay.ChangeAccount, Account: a.ID})
		return err
	})
	return a, err
}

// RemoveAccount removes an account with its keys, tokens, sessions, links, shares, saved
// searches and memberships, and ends its tunnels and streams. Its aliases stay, so that an admin
// can transfer them.
func (s *Store) RemoveAccount(ctx context.Context, who relay.Actor, name string) error {
	return s.db.UpdateIf(ctx, AllowAdmin(who), "remove account", func(c *db.Tx) error {
		a, err := findAccount(c.Query, name)
		if err != nil {
			return err
		}
		// The account is locked first: an operation that adds a key or a member at the same time has either
		// locked it before, so that the removal waits, or waits and then finds it removed.
		if err := c.RequireRow(relay.ErrNotFound, `UPDATE accounts SET removed_at = ?, admin = 0 WHERE id = ? AND removed_at = 0`, db.Micros(c.Now()), a.ID); err != nil {
			return err
		}
		for _, table := range []string{`keys`, `tokens`, `sessions`, `links`, `members`, `shares`, `saved_searches`, `refused_forwards`} {
			c.Do(`DELETE FROM `+table+` WHERE account_id = ?`, a.ID)
		}
		var aliases []int64
		if err := c.All(&aliases, `SELECT id FROM aliases WHERE owner_id = ?`, a.ID); err != nil {
			return err
		}
		c.Announce(relay.Change{Kind: relay.ChangeAccount, Account: a.ID})
		for _, id := range aliases {
			c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: id})
		}
		return Audit(c, who, a.ID, "user.remove", name, "")
	})
}

// Members lists the accounts that may use an alias besides its owner.
func (s *Store) Members(ctx context.Context, who relay.Actor, alias string) (names []string, err error) {
	err = s.db.View(ctx, "read members", func(q db.Query) error {
		a, err := FindAlias(q, who, alias)
		if err != nil {
			return err
		}
		names = []string{}
		return q.All(&names, `SELECT o.name FROM members m JOIN accounts o ON o.id = m.account_id WHERE m.alias_id = ? ORDER BY o.name`, a.ID)
	})
	return names, err
}

// AddMember lets another account open the tunnel of an alias, see its events and replay them. Only the owner
// may do this. Adding a member again does nothing.
func (s *Store) AddMember(ctx context.Context, who relay.Actor, alias, user string) error {
	return s.db.UpdateIf(ctx, Allow(who, relay.ScopeAliasesWrite), "add member", func(c *db.Tx) error {
		if _, err := ownAlias(c.Query, who, alias); err != nil {
			return err
		}
		m, err := findAccount(c.Query, user)
		if err != nil {
			return err
		}
		if err := HoldAccount(c, m.ID); err != nil {
			return err
		}
		a, err := ownAliasForUpdate(c, who, alias)
		if err != nil {
			return err
		}
		if m.ID == a.Owner {
			return relay.Errorf(relay.CodeConflict, "%s owns %s", user, alias)
		}
		n, err := c.Exec(`INSERT INTO members (alias_id, account_id) VALUES (?, ?) ON CONFLICT DO NOTHING`, a.ID, m.ID)
		if err != nil || n == 0 {
			return err
		}
		c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID, Account: m.ID})
		return Audit(c, who, m.ID, "member.add", alias, user)
	})
}

// RemoveMember ends the access of a member to an alias, and the member's tunnel, streams and shares of that
// alias. The owner or the member itself may do this. RemoveMember returns ErrNotFound if the account is no
// member.
func (s *Store) RemoveMember(ctx context.Context, who relay.Actor, alias, user string) error {
	return s.db.UpdateIf(ctx, Allow(who, relay.ScopeAliasesWrite), "remove member", func(c *db.Tx) error {
		a, err := AliasForUpdate(c, func() (*relay.Alias, error) {
			if user == who.AccountName { // a member may end its own access
				return FindAlias(c.Query, who, alias)
			}
			return ownAlias(c.Query, who, alias)
		})
		if err != nil {
			return err
		}
		m, err := findAccount(c.Query, user)
		if err != nil {
			return err
		}
		if err := c.RequireRow(relay.ErrNotFound, `DELETE FROM members WHERE alias_id = ? AND account_id = ?`, a.ID, m.ID); err != nil {
			return err
		}
		dropAccess(c, a, m.ID)
		c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID}, relay.Change{Kind: relay.ChangeAccount, Account: m.ID})
		return Audit(c, who, m.ID, "member.remove", alias, user)
	})
}
