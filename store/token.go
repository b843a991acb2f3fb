package store

import (
	"context"
	"time"

	"relay"
	"relay/record"
)

type tokenRow struct {
	ID         string `db:"id"`
	AccountID  int64  `db:"account_id"`
	Account    string `db:"account"`
	Admin      int    `db:"admin"`
	Name       string `db:"name"`
	Scopes     uint32 `db:"scopes"`
	AliasID    int64  `db:"alias_id"`
	Alias      string `db:"alias"`
	CreatedAt  int64  `db:"created_at"`
	ExpiresAt  int64  `db:"expires_at"`
	LastUsedAt int64  `db:"last_used_at"`
}

const tokenQuery = `SELECT x.id, x.account_id, o.name AS account, o.admin, x.name, x.scopes, COALESCE(x.alias_id, 0) AS alias_id,
	COALESCE(al.name, '') AS alias, x.created_at, x.expires_at, x.last_used_at
	FROM tokens x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0 LEFT JOIN aliases al ON al.id = x.alias_id WHERE `

func (r *tokenRow) token() relay.Token {
	return relay.Token{
		ID: r.ID, Account: r.AccountID, AccountName: r.Account, Name: r.Name, Scopes: relay.Scope(r.Scopes), Alias: r.Alias,
		CreatedAt: fromMicros(r.CreatedAt), ExpiresAt: fromMicros(r.ExpiresAt), LastUsedAt: fromMicros(r.LastUsedAt),
	}
}

// TokenOwner gives the actor of an API token; ErrNotFound for unknown and expired
// ones.
func (s *Store) TokenOwner(ctx context.Context, secret string) (who relay.Actor, err error) {
	var row tokenRow
	if err := s.view(ctx, "read token", func(q session) error {
		return q.get(&row, tokenQuery+`x.hash = ? AND (x.expires_at = 0 OR x.expires_at > ?)`, hash(secret), micros(s.now()))
	}); err != nil {
		return who, err
	}
	s.credentialUse.record("tokens", row.ID, row.LastUsedAt)
	who = relay.Actor{
		Account: row.AccountID, AccountName: row.Account, Admin: row.Admin != 0, Kind: relay.ActorToken, Name: row.Name,
		Scopes: relay.Scope(row.Scopes), Alias: row.AliasID, AliasName: row.Alias, Credential: row.ID, ExpiresAt: fromMicros(row.ExpiresAt),
	}
	if who.Name == "" {
		who.Name = row.ID
	}
	return who, nil
}

// CreateToken makes an API token from t's AccountName ("" = the actor's own), Name,
// Scopes (0 = all that the actor has), Alias, ExpiresAt and Renewal. No token can make one
// wider than itself; one limited to an alias can make none. A name that cannot be shown
// is refused (validation-failed). The secret is given once.
func (s *Store) CreateToken(ctx context.Context, who relay.Actor, t relay.Token) (made relay.Token, secret string, err error) {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return made, "", err
	}
	if fault := record.NameFault(t.Name); fault != "" {
		return made, "", invalid("name", nil, fault)
	}
	if err := narrow(who, &t); err != nil {
		return made, "", err
	}
	if t.Scopes.Has(relay.ScopeAccount) {
		if err := s.requireFreshLogin(who); err != nil {
			return made, "", err
		}
	}
	if secret, err = newSecret("rly_"); err != nil {
		return made, "", err
	}
	err = s.update(ctx, "create token", func(c *writeTx) error {
		account, err := c.subject(who, t.AccountName)
		if err != nil {
			return err
		}
		var alias any
		if t.Alias != "" {
			a, err := c.alias(relay.Actor{Kind: relay.ActorUser, Account: account.ID}, t.Alias)
			if err != nil {
				return err
			}
			alias = a.ID
		}
		id := newName("tok_")
		if _, err := c.exec(`INSERT INTO tokens (id, hash, account_id, name, scopes, alias_id, created_at, expires_at, renewal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, hash(secret), account.ID, truncateName(t.Name), int64(t.Scopes), alias, micros(s.now()), micros(t.ExpiresAt), t.Renewal.Microseconds()); err != nil {
			return err
		}
		var row tokenRow
		if err := c.get(&row, tokenQuery+`x.id = ?`, id); err != nil {
			return err
		}
		made = row.token()
		return c.audit(who, account.ID, "token.add", id, made.Name)
	})
	if err != nil {
		return relay.Token{}, "", err
	}
	return made, secret, nil
}

// narrow holds a new token within the one that makes it.
func narrow(who relay.Actor, t *relay.Token) error {
	if !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(time.Now()) {
		return invalid("expiresIn", nil, "must be in the future")
	}
	if who.Kind != relay.ActorToken {
		if t.Scopes == 0 {
			t.Scopes = relay.AllScopes
		}
		return nil
	}
	if t.Scopes == 0 {
		t.Scopes = who.Scopes
	}
	if !who.Scopes.Has(t.Scopes) {
		return relay.Errorf(relay.CodeForbidden, "a token cannot make one with more scopes than its own")
	}
	if !who.ExpiresAt.IsZero() && (t.ExpiresAt.IsZero() || t.ExpiresAt.After(who.ExpiresAt)) {
		return relay.Errorf(relay.CodeForbidden, "a token cannot make one that lasts longer than itself")
	}
	return nil
}

// Tokens lists the tokens of the account user, "" = the actor's own; the operator
// sees all with "".
func (s *Store) Tokens(ctx context.Context, who relay.Actor, user string) ([]relay.Token, error) {
	return credentials(ctx, s, who, user, (*tokenRow).token, tokenQuery)
}

// RemoveToken revokes a token: of the actor, or of anybody for admins.
func (s *Store) RemoveToken(ctx context.Context, who relay.Actor, id string) error {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return err
	}
	return s.removeCredential(ctx, who, who.Admin, "token", `name`, `id = ?`, id)
}
