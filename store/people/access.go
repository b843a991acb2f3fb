package people

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/store/db"
)

// Allow returns an error if the actor is limited to some scopes and want is not among them.
func Allow(who relay.Actor, want relay.Scope) error {
	switch {
	case who.Kind == relay.ActorSystem, who.Kind == relay.ActorUser, who.Kind == relay.ActorSSH,
		who.Kind == relay.ActorShare && want == relay.ScopeEventsReplay,
		who.Kind == relay.ActorToken && who.Scopes.Has(want):
		return nil
	}
	return relay.Errorf(relay.CodeForbidden, "this needs the scope %s", want.Names()[0])
}

// allowAccount is Allow for actions on an account and not on one alias.
func allowAccount(who relay.Actor, want relay.Scope) error {
	if err := Allow(who, want); err != nil {
		return err
	}
	if who.Alias != 0 {
		return relay.Errorf(relay.CodeForbidden, "a token limited to one alias cannot do this")
	}
	return nil
}

// freshLogin is the longest age of a login with which a session may make changes that outlive the
// session or cannot be undone.
const freshLogin = 15 * time.Minute

// requireFreshLogin returns login-too-old for a dashboard session whose login is older than freshLogin.
// Otherwise, the thief of a session can make the access permanent with a key or a token, or give an alias
// away. Credentials without a login pass.
func (s *Store) requireFreshLogin(who relay.Actor) error {
	if who.LoggedInAt.IsZero() || s.db.Now().Sub(who.LoggedInAt) <= freshLogin {
		return nil
	}
	return relay.Errorf(relay.CodeLoginTooOld, "this needs a login within the last 15 minutes; log in again and repeat it")
}

// AllowAdmin is allowAccount for actions that only admins may do.
func AllowAdmin(who relay.Actor) error {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return err
	}
	if !who.Admin {
		return relay.Errorf(relay.CodeForbidden, "only an admin may do this")
	}
	return nil
}

// AliasAccess returns a condition on al (aliases). It holds if the actor may see the alias as owner or
// member. A removed account sees no alias.
func AliasAccess(who relay.Actor) (string, []any) {
	if who.Kind == relay.ActorSystem {
		return `1 = 1`, nil
	}
	if who.Kind == relay.ActorShare || who.Kind == relay.ActorQueue {
		return `1 = 0`, nil // holders of shares, and the queue, never act on an alias
	}
	may := `EXISTS (SELECT 1 FROM accounts o WHERE o.id = ? AND o.removed_at = 0 AND (al.owner_id = o.id
		OR EXISTS (SELECT 1 FROM members m WHERE m.alias_id = al.id AND m.account_id = o.id)))`
	args := []any{who.Account}
	if who.Alias != 0 {
		may, args = may+` AND al.id = ?`, append(args, who.Alias)
	}
	return may, args
}

// AliasesAccess is AliasAccess for statements that list aliases. The engine finds these aliases by the
// indexes on owners and members instead of reading every alias.
func AliasesAccess(who relay.Actor) (string, []any) {
	may, args := AliasAccess(who)
	if who.Kind == relay.ActorSystem {
		return may, args
	}
	return `al.id IN (SELECT a.id FROM aliases a WHERE a.owner_id = ? UNION SELECT m.alias_id FROM members m WHERE m.account_id = ?) AND ` + may,
		append([]any{who.Account, who.Account}, args...)
}

// A credential is a key, a token or a session. In queries its table is named x, and the table of its account o.

const credentialUseInterval = time.Minute

// allOfAccount holds the columns name, scopes, alias_id and alias of credentialOwner for a credential
// with all rights of its account.
var allOfAccount = fmt.Sprintf(`o.name, %d, 0, ''`, relay.AllScopes)

// credentialOwner reads the actor of a credential, and notes the use of the credential. The parameter where
// is an SQL condition that selects the row of the credential in a table. columns are the columns for name,
// scopes, alias_id, alias, end and time of login.
func (s *Store) credentialOwner(ctx context.Context, kind relay.ActorKind, table, columns, where string, args ...any) (relay.Actor, error) {
	who, used := relay.Actor{Kind: kind}, time.Time{}
	err := s.db.ViewLogin(ctx, "read credential", func(q db.Query) error {
		return q.Row(`SELECT x.id, x.account_id, o.name, o.admin, x.last_used_at, `+columns+`
			FROM `+table+` x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0 WHERE `+where, args...).Scan(
			&who.Credential, &who.Account, &who.AccountName, &who.Admin, (*db.Time)(&used),
			&who.Name, &who.Scopes, &who.Alias, &who.AliasName, (*db.Time)(&who.ExpiresAt), (*db.Time)(&who.LoggedInAt))
	})
	if err != nil {
		return relay.Actor{}, err
	}
	if now := s.db.Now(); now.Sub(used) >= credentialUseInterval {
		s.late.putOnce(table+" "+who.Credential, credentialUseInterval, func(c *db.Tx) error {
			c.Do(`UPDATE `+table+` SET last_used_at = ? WHERE id = ?`, db.Micros(now), who.Credential)
			if kind == relay.ActorToken {
				c.Do(`UPDATE tokens SET expires_at = last_used_at + renewal WHERE id = ? AND renewal > 0`, who.Credential)
			}
			return nil
		})
	}
	return who, nil
}

// credentials lists the credentials that the query selects, of the account with the name user; "" means the
// actor's own account or, for the operator, every account.
func credentials[T any](ctx context.Context, s *Store, who relay.Actor, user string, fields func(*T) []any, query string, args ...any) ([]T, error) {
	if err := Allow(who, relay.ScopeAccount); err != nil {
		return nil, err
	}
	return db.Read(ctx, s.db, "read credentials", func(q db.Query) ([]T, error) {
		if who.Kind != relay.ActorSystem || user != "" {
			if who.Alias != 0 || who.Kind == relay.ActorShare {
				return nil, relay.Errorf(relay.CodeForbidden, "a token limited to one alias cannot see credentials")
			}
			a, err := subjectOf(q, who, user)
			if err != nil {
				return nil, err
			}
			query, args = query+`x.account_id = ? AND `, append(args, a.ID)
		}
		return db.RowsOf(q, fields, query+`1 = 1 ORDER BY x.created_at, x.id`, args...)
	})
}

// removeCredential deletes a credential of the actor, or of any account if the parameter all is true, and
// announces the deletion, so that the connections of the credential end. kind is the name of its table
// without the final s. The parameter where is an SQL condition that selects the row by the id, and detail is the
// column whose value goes into the audit log. The parameter may is that of UpdateIf.
func (s *Store) removeCredential(ctx context.Context, who relay.Actor, may error, all bool, kind, detail, where, id string) error {
	return s.db.UpdateIf(ctx, may, "remove "+kind, func(c *db.Tx) error {
		var gone, about string
		var account int64
		if err := c.Row(`DELETE FROM `+kind+`s WHERE `+where+` AND (account_id = ? OR 1 = ?) RETURNING id, account_id, `+detail,
			db.StorableText(id), who.Account, db.BoolToInt(all)).Scan(&gone, &account, &about); err != nil {
			return err
		}
		c.Announce(relay.Change{Kind: relay.ChangeAccount, Account: account, Credential: gone})
		return Audit(c, who, account, kind+".remove", gone, about)
	})
}

// StillValid returns nil while the credential of the actor is valid, else ErrNotFound. The system is
// always valid.
func (s *Store) StillValid(ctx context.Context, who relay.Actor) error {
	if who.Kind == relay.ActorSystem {
		return nil
	}
	table := map[relay.ActorKind]string{
		relay.ActorUser: `sessions`, relay.ActorToken: `tokens`, relay.ActorShare: `shares`,
		relay.ActorSSH: `(SELECT id, account_id, CAST(0 AS BIGINT) AS expires_at FROM keys)`,
	}[who.Kind]
	if table == "" {
		return relay.ErrNotFound
	}
	return s.db.ViewLogin(ctx, "check credential", func(q db.Query) error {
		var one int
		return q.Get(&one, `SELECT 1 FROM `+table+` x WHERE x.id = ? AND (x.expires_at = 0 OR x.expires_at > ?)
			AND EXISTS (SELECT 1 FROM accounts o WHERE o.id = x.account_id AND o.removed_at = 0)`, who.Credential, db.Micros(s.db.Now()))
	})
}

// AccountsOf returns, for each of some aliases, the accounts that may see it as owner or member.
// Removed aliases are left out.
func (s *Store) AccountsOf(ctx context.Context, aliases []int64) (map[int64][]int64, error) {
	type right struct{ alias, account int64 }
	fields := func(r *right) []any { return []any{&r.alias, &r.account} }
	out := map[int64][]int64{}
	for some := range slices.Chunk(aliases, revokedMost) {
		owned, args := db.ColumnIn(`a.id`, some)
		shared, more := db.ColumnIn(`m.alias_id`, some)
		rights, err := db.ReadRows(ctx, s.db, "read who sees aliases", fields, `SELECT r.alias_id, r.account_id
			FROM (SELECT a.id AS alias_id, a.owner_id AS account_id FROM aliases a WHERE `+owned+`
				UNION SELECT m.alias_id, m.account_id FROM members m WHERE `+shared+`) r
			JOIN accounts o ON o.id = r.account_id AND o.removed_at = 0`, append(args, more...)...)
		if err != nil {
			return nil, err
		}
		for _, r := range rights {
			out[r.alias] = append(out[r.alias], r.account)
		}
	}
	return out, nil
}

// revokedMost is the number of rights that one statement checks. A right takes three parameters, and SQLite
// accepts 32,766.
const revokedMost = 10_000

// Revoked returns those of the given rights that have ended; each is a right that an SSH connection uses. A
// right ends when its key or account is removed, or when the account is no longer owner or member of the alias.
func (s *Store) Revoked(ctx context.Context, rights []relay.Right) (revoked []relay.Right, err error) {
	fields := func(r *relay.Right) []any { return []any{&r.Account, &r.Key, &r.Alias} }
	for some := range slices.Chunk(rights, revokedMost) {
		rows := strings.Repeat(`, (CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT))`, len(some))[1:]
		args := make([]any, 0, 3*len(some))
		for _, r := range some {
			args = append(args, r.Account, db.StorableText(r.Key), r.Alias)
		}
		gone, err := db.ReadRows(ctx, s.db, "check rights of ssh connections", fields, `WITH r (account_id, key_id, alias_id) AS (VALUES `+rows+`)
			SELECT account_id, key_id, alias_id FROM r
			WHERE NOT EXISTS (SELECT 1 FROM accounts o WHERE o.id = r.account_id AND o.removed_at = 0)
				OR r.alias_id = 0 AND NOT EXISTS (SELECT 1 FROM keys k WHERE k.id = r.key_id AND k.account_id = r.account_id)
				OR r.alias_id <> 0 AND NOT EXISTS (SELECT 1 FROM aliases al WHERE al.id = r.alias_id AND al.owner_id = r.account_id)
					AND NOT EXISTS (SELECT 1 FROM members m WHERE m.alias_id = r.alias_id AND m.account_id = r.account_id)`, args...)
		if err != nil {
			return nil, err
		}
		revoked = append(revoked, gone...)
	}
	return revoked, nil
}
