package people

import (
	"cmp"
	"context"
	"strings"
	"time"

	"relay"
	"relay/record"
	"relay/store/db"
)

const tokenQuery = `SELECT x.id, x.account_id, o.name, x.name, x.scopes, COALESCE(al.name, ''), x.created_at, x.expires_at, x.last_used_at
	FROM tokens x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0 LEFT JOIN aliases al ON al.id = x.alias_id WHERE `

func tokenFields(t *relay.Token) []any {
	return []any{
		&t.ID, &t.Account, &t.AccountName, &t.Name, &t.Scopes, &t.Alias, (*db.Time)(&t.CreatedAt), (*db.Time)(&t.ExpiresAt), (*db.Time)(&t.LastUsedAt),
	}
}

// TokenOwner returns the actor of an API token. The error is ErrNotFound for unknown and expired tokens.
func (s *Store) TokenOwner(ctx context.Context, secret string) (relay.Actor, error) {
	return s.credentialOwner(ctx, relay.ActorToken, "tokens", `CASE x.name WHEN '' THEN x.id ELSE x.name END, x.scopes, COALESCE(x.alias_id, 0),
		COALESCE((SELECT al.name FROM aliases al WHERE al.id = x.alias_id), ''), x.expires_at, 0`,
		`x.hash = ? AND (x.expires_at = 0 OR x.expires_at > ?)`, Hash(secret), db.Micros(s.db.Now()))
}

// CreateToken makes an API token from t's AccountName ("" = the actor's own), Name, Scopes (0 = all
// that the actor has), Alias, ExpiresAt and Renewal. A token cannot create tokens with more rights
// than its own; a token limited to an alias can create none. A name that cannot be shown is refused
// (validation-failed). The secret is returned once.
func (s *Store) CreateToken(ctx context.Context, who relay.Actor, t relay.Token) (made relay.Token, secret string, err error) {
	if err := cmp.Or(allowAccount(who, relay.ScopeAccount), narrow(who, &t)); err != nil {
		return made, "", err
	}
	if t.Scopes.Has(relay.ScopeAccount) {
		if err := s.requireFreshLogin(who); err != nil {
			return made, "", err
		}
	}
	secret = NewSecret("rly_")
	err = s.db.Update(ctx, "create token", func(c *db.Tx) error {
		account, err := subjectOf(c.Query, who, t.AccountName)
		if err != nil {
			return err
		}
		if err := HoldAccount(c, account.ID); err != nil {
			return err
		}
		var alias any
		if t.Alias != "" {
			holder := relay.Actor{Kind: relay.ActorUser, Account: account.ID}
			a, err := AliasForUpdate(c, func() (*relay.Alias, error) { return FindAlias(c.Query, holder, t.Alias) })
			if err != nil {
				return err
			}
			alias = a.ID
		}
		id := NewName("tok_")
		c.Do(`INSERT INTO tokens (id, hash, account_id, name, scopes, alias_id, created_at, expires_at, renewal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, Hash(secret), account.ID, truncateName(t.Name), int64(t.Scopes), alias, db.Micros(s.db.Now()), db.Micros(t.ExpiresAt), t.Renewal.Microseconds())
		if made, err = db.RowOf(c.Query, tokenFields, tokenQuery+`x.id = ?`, id); err != nil {
			return err
		}
		return Audit(c, who, account.ID, "token.add", id, made.Name)
	})
	return made, secret, err
}

// narrow checks a new token, and limits its rights to those of the actor.
func narrow(who relay.Actor, t *relay.Token) error {
	if fault := record.NameFault(t.Name); fault != "" {
		return Invalid("name", nil, fault)
	}
	if !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(time.Now()) {
		return Invalid("expiresIn", nil, "must be in the future")
	}
	if t.Scopes == 0 {
		t.Scopes = relay.AllScopes
		if who.Kind == relay.ActorToken {
			t.Scopes = who.Scopes
		}
	}
	if who.Kind != relay.ActorToken {
		return nil
	}
	if more := t.Scopes &^ who.Scopes; more != 0 {
		return relay.Errorf(relay.CodeForbidden, "a token cannot make one with more scopes than its own; leave out %s", strings.Join(more.Names(), " "))
	}
	if end := who.ExpiresAt; !end.IsZero() && (t.ExpiresAt.IsZero() || t.ExpiresAt.After(end)) {
		return relay.Errorf(relay.CodeForbidden, "a token cannot make one that lasts longer than itself; give an expiresIn below %s",
			relay.FormatDuration(max(time.Until(end).Truncate(time.Second), time.Second)))
	}
	return nil
}

// Tokens lists the tokens of the account user; "" = the actor's own account, or for the operator all tokens.
func (s *Store) Tokens(ctx context.Context, who relay.Actor, user string) ([]relay.Token, error) {
	return credentials(ctx, s, who, user, tokenFields, tokenQuery)
}

// RenewToken extends the acting token by the lifetime with which it was made; a token without an
// expiry stays unchanged. The column renewal keeps that lifetime as a negative number for further
// calls. Because the number is negative, the mere use of the token does not extend it.
func (s *Store) RenewToken(ctx context.Context, who relay.Actor) (renewed relay.Token, err error) {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return renewed, err
	}
	if who.Kind != relay.ActorToken {
		return renewed, relay.Errorf(relay.CodeConflict, "only an API token can be renewed; send one as Authorization: Bearer")
	}
	err = s.db.Update(ctx, "renew token", func(c *db.Tx) error {
		now := db.Micros(s.db.Now())
		c.Do(`UPDATE tokens SET renewal = created_at - expires_at WHERE id = ? AND expires_at > ? AND renewal = 0`, who.Credential, now)
		c.Do(`UPDATE tokens SET expires_at = ? + ABS(renewal) WHERE id = ? AND expires_at > ?`, now, who.Credential, now)
		if renewed, err = db.RowOf(c.Query, tokenFields, tokenQuery+`x.id = ? AND (x.expires_at = 0 OR x.expires_at > ?)`, who.Credential, now); err != nil {
			return err // a token that has just ended is not extended
		}
		return Audit(c, who, who.Account, "token.renew", renewed.ID, renewed.Name)
	})
	return renewed, err
}

// RemoveToken revokes a token: a token of the actor, or for admins of any account.
func (s *Store) RemoveToken(ctx context.Context, who relay.Actor, id string) error {
	return s.removeCredential(ctx, who, allowAccount(who, relay.ScopeAccount), who.Admin, "token", `name`, `id = ?`, id)
}
