package store

import (
	"context"
	"errors"
	"time"

	"relay"
)

// sessionLife is how long a dashboard login lasts.
const sessionLife = 30 * 24 * time.Hour

type sessionRow struct {
	ID         string `db:"id"`
	AccountID  int64  `db:"account_id"`
	Account    string `db:"account"`
	Admin      int    `db:"admin"`
	CreatedAt  int64  `db:"created_at"`
	LastUsedAt int64  `db:"last_used_at"`
	ExpiresAt  int64  `db:"expires_at"`
	Remote     string `db:"remote"`
	UserAgent  string `db:"user_agent"`
}

const sessionQuery = `SELECT x.id, x.account_id, o.name AS account, o.admin, x.created_at, x.last_used_at, x.expires_at, x.remote, x.user_agent
	FROM sessions x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0 WHERE `

func (r *sessionRow) session() relay.Session {
	return relay.Session{
		ID: r.ID, Account: r.AccountID, CreatedAt: fromMicros(r.CreatedAt), LastUsedAt: fromMicros(r.LastUsedAt),
		ExpiresAt: fromMicros(r.ExpiresAt), Remote: r.Remote, UserAgent: r.UserAgent,
	}
}

// SessionOwner gives the actor of a dashboard session; ErrNotFound for unknown and
// expired ones.
func (s *Store) SessionOwner(ctx context.Context, secret string) (who relay.Actor, err error) {
	var row sessionRow
	if err := s.view(ctx, "read session", func(q session) error {
		return q.get(&row, sessionQuery+`x.hash = ? AND x.expires_at > ?`, hash(secret), micros(s.now()))
	}); err != nil {
		return who, err
	}
	s.credentialUse.record("sessions", row.ID, row.LastUsedAt)
	return relay.Actor{
		Account: row.AccountID, AccountName: row.Account, Admin: row.Admin != 0, Kind: relay.ActorUser, Name: row.Account,
		Scopes: relay.AllScopes, Credential: row.ID, ExpiresAt: fromMicros(row.ExpiresAt),
		LoggedInAt: fromMicros(row.CreatedAt),
	}, nil
}

// Sessions lists the dashboard logins of the actor's account.
func (s *Store) Sessions(ctx context.Context, who relay.Actor) ([]relay.Session, error) {
	return credentials(ctx, s, who, "", (*sessionRow).session, sessionQuery+`x.expires_at > ? AND `, micros(s.now()))
}

// RemoveSession ends a login of the actor's account by its id.
func (s *Store) RemoveSession(ctx context.Context, who relay.Actor, id string) error {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return err
	}
	return s.removeCredential(ctx, who, who.Kind == relay.ActorSystem, "session", `''`, `id = ?`, id)
}

// EndSession is a logout: it ends the session of a secret. An unknown one is fine.
func (s *Store) EndSession(ctx context.Context, secret string) error {
	who, err := s.SessionOwner(ctx, secret)
	if err == nil {
		err = s.RemoveSession(ctx, who, who.Credential)
	}
	if errors.Is(err, relay.ErrNotFound) {
		return nil
	}
	return err
}

// One-time links.
const (
	linkLogin     = "login"
	linkInvite    = "invite"
	loginLinkLife = 15 * time.Minute
	inviteLife    = 3 * 24 * time.Hour
)

// CreateLoginLink makes the secret of a one-time login to the account user ("" =
// the actor's own; another one only for the operator). ttl 0 = 15 minutes, the most
// it can be.
func (s *Store) CreateLoginLink(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (string, error) {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return "", err
	}
	if user != "" && user != who.AccountName && who.Kind != relay.ActorSystem {
		return "", relay.Errorf(relay.CodeForbidden, "a login link for another account is made by relayd login-link or as an invite")
	}
	return s.createLink(ctx, who, user, linkLogin, clampTTL(ttl, loginLinkLife))
}

// CreateInvite makes the secret by which a new person comes in to an account; for
// admins. ttl 0 = 3 days, the most it can be.
func (s *Store) CreateInvite(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (string, error) {
	if err := allowAdmin(who); err != nil {
		return "", err
	}
	return s.createLink(ctx, who, user, linkInvite, clampTTL(ttl, inviteLife))
}

func clampTTL(ttl, most time.Duration) time.Duration {
	if ttl <= 0 || ttl > most {
		return most
	}
	return ttl
}

func (s *Store) createLink(ctx context.Context, who relay.Actor, user, kind string, ttl time.Duration) (string, error) {
	secret, err := newSecret("")
	if err != nil {
		return "", err
	}
	err = s.update(ctx, "create "+kind+" link", func(c *writeTx) error {
		account, err := c.subject(who, user)
		if err != nil {
			return err
		}
		now := s.now()
		if _, err := c.exec(`INSERT INTO links (hash, account_id, kind, created_at, expires_at) VALUES (?, ?, ?, ?, ?)`,
			hash(secret), account.ID, kind, micros(now), micros(now.Add(ttl))); err != nil {
			return err
		}
		return c.audit(who, account.ID, kind+".add", account.Name, "")
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

const linkQuery = `SELECT o.id, o.name, o.admin, o.created_at FROM links x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0
	WHERE x.hash = ? AND x.expires_at > ?`

const inviteQuery = linkQuery + ` AND x.kind = '` + linkInvite + `'`

// LoginLink looks a login link or an invite up without using it; ErrNotFound for
// unknown, used and expired ones.
func (s *Store) LoginLink(ctx context.Context, secret string) (relay.Account, error) {
	return s.linkAccount(ctx, linkQuery, secret)
}

// Invite looks an invitation up without using it; ErrNotFound for unknown, used and
// expired ones.
func (s *Store) Invite(ctx context.Context, secret string) (relay.Account, error) {
	return s.linkAccount(ctx, inviteQuery, secret)
}

func (s *Store) linkAccount(ctx context.Context, query, secret string) (relay.Account, error) {
	var row accountRow
	err := s.view(ctx, "read link", func(q session) error {
		return q.get(&row, query, hash(secret), micros(s.now()))
	})
	return row.account(), err
}

// UseLoginLink burns a login link or an invite and opens a dashboard session for
// its account. Of several who use one at once, one succeeds.
func (s *Store) UseLoginLink(ctx context.Context, secret, remote, userAgent string) (sessionSecret string, acc relay.Account, err error) {
	return s.useLink(ctx, linkQuery, secret, remote, userAgent, nil)
}

// useLink burns the link that a query selects, and opens a dashboard session for its account.
// first is done before that, in the same transaction, unless it is nil.
func (s *Store) useLink(ctx context.Context, query, secret, remote, userAgent string, first func(*writeTx, relay.Actor) error) (sessionSecret string, acc relay.Account, err error) {
	if sessionSecret, err = newSecret(""); err != nil {
		return "", acc, err
	}
	err = s.update(ctx, "use link", func(c *writeTx) error {
		var row accountRow
		if err := c.get(&row, query, hash(secret), micros(c.now())); err != nil {
			return err
		}
		if n, err := c.exec(`DELETE FROM links WHERE hash = ?`, hash(secret)); err != nil || n == 0 {
			return relay.ErrNotFound
		}
		acc = row.account()
		who := relay.Actor{Kind: relay.ActorUser, Account: acc.ID, Name: acc.Name}
		if first != nil {
			if err := first(c, who); err != nil {
				return err
			}
		}
		id, now := newName("ses_"), c.now()
		if _, err := c.exec(`INSERT INTO sessions (id, hash, account_id, created_at, last_used_at, expires_at, remote, user_agent) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			id, hash(sessionSecret), acc.ID, micros(now), micros(now), micros(now.Add(sessionLife)), truncateName(remote), truncateName(userAgent)); err != nil {
			return err
		}
		return c.audit(who, acc.ID, "session.add", id, truncateName(remote))
	})
	if err != nil {
		return "", relay.Account{}, err
	}
	return sessionSecret, acc, nil
}

// UseInvite burns an invitation: it registers a public key, one authorized_keys line,
// for the invited account and opens a dashboard session. A key that is the account's
// already is fine. When the key is refused (validation-failed, or conflict for one of
// another account) the invitation can still be used.
func (s *Store) UseInvite(ctx context.Context, secret, keyLine, remote, userAgent string) (sessionSecret string, acc relay.Account, err error) {
	key, err := newKey("", keyLine)
	if err != nil {
		return "", acc, err
	}
	return s.useLink(ctx, inviteQuery, secret, remote, userAgent, func(c *writeTx, who relay.Actor) error {
		own, err := c.exists(`SELECT 1 FROM keys WHERE fingerprint = ? AND account_id = ?`, key.Fingerprint, who.Account)
		if err != nil || own {
			return err
		}
		key.AccountID, key.Account = who.Account, who.Name
		return c.insertKey(who, key)
	})
}
