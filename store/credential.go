package store

import (
	"context"
	"fmt"
	"time"

	"relay"
)

// A credential is a key, a token or a session. In queries it is x and its account o.

const credentialUseInterval = time.Minute

// allOfAccount are the columns name, scopes, alias_id and alias of credentialOwner for a credential
// that may do all that its account may.
var allOfAccount = fmt.Sprintf(`o.name, %d, 0, ''`, relay.AllScopes)

// credentialOwner reads the actor of the credential that where selects in a table, and notes
// its use. columns are its name, scopes, alias_id, alias, end and time of login.
func (s *Store) credentialOwner(ctx context.Context, kind relay.ActorKind, table, columns, where string, args ...any) (relay.Actor, error) {
	who, used := relay.Actor{Kind: kind}, time.Time{}
	err := s.view(ctx, "read credential", func(q session) error {
		return q.row(`SELECT x.id, x.account_id, o.name, o.admin, x.last_used_at, `+columns+`
			FROM `+table+` x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0 WHERE `+where, args...).Scan(
			&who.Credential, &who.Account, &who.AccountName, &who.Admin, (*micro)(&used),
			&who.Name, &who.Scopes, &who.Alias, &who.AliasName, (*micro)(&who.ExpiresAt), (*micro)(&who.LoggedInAt))
	})
	if err != nil {
		return relay.Actor{}, err
	}
	if now := time.Now(); now.Sub(used) >= credentialUseInterval {
		s.later.add(table+" "+who.Credential, credentialUseInterval, func(c *writeTx) error {
			c.do(`UPDATE `+table+` SET last_used_at = ? WHERE id = ?`, micros(now), who.Credential)
			if kind == relay.ActorToken {
				c.do(`UPDATE tokens SET expires_at = last_used_at + renewal WHERE id = ? AND renewal > 0`, who.Credential)
			}
			return nil
		})
	}
	return who, nil
}

// credentials lists what the query selects, of the account user; "" is the actor's own
// account, and every account for the operator.
func credentials[T any](ctx context.Context, s *Store, who relay.Actor, user string, fields func(*T) []any, query string, args ...any) ([]T, error) {
	return read(ctx, s, "read credentials", func(q session) ([]T, error) {
		if who.Kind != relay.ActorSystem || user != "" {
			if who.Alias != 0 || who.Kind == relay.ActorShare {
				return nil, relay.Errorf(relay.CodeForbidden, "a token limited to one alias cannot see credentials")
			}
			a, err := q.subject(who, user)
			if err != nil {
				return nil, err
			}
			query, args = query+`x.account_id = ? AND `, append(args, a.ID)
		}
		return rowsOf(q, fields, query+`1 = 1 ORDER BY x.created_at, x.id`, args...)
	})
}

// removeCredential deletes the row of the table of a kind that where selects: of the actor, or
// of anybody if all is set. It announces that, so that the connections of the credential end.
// detail is the column that goes into the audit log. may is as in updateIf.
func (s *Store) removeCredential(ctx context.Context, who relay.Actor, may error, all bool, kind, detail, where, id string) error {
	return s.updateIf(ctx, may, "remove "+kind, func(c *writeTx) error {
		var gone, about string
		var account int64
		if err := c.row(`DELETE FROM `+kind+`s WHERE `+where+` AND (account_id = ? OR 1 = ?) RETURNING id, account_id, `+detail,
			storableText(id), who.Account, boolToInt(all)).Scan(&gone, &account, &about); err != nil {
			return err
		}
		c.announce(relay.Change{Kind: relay.ChangeAccount, Account: account, Credential: gone})
		return c.audit(who, account, kind+".remove", gone, about)
	})
}
