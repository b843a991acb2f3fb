package people

import (
	"context"
	"errors"
	"time"

	"relay"
	"relay/store/db"
)

// sessionLife is the lifetime of a dashboard login.
const sessionLife = 30 * 24 * time.Hour

// SessionOwner returns the actor of a dashboard session. The error is ErrNotFound for unknown and
// expired sessions.
func (s *Store) SessionOwner(ctx context.Context, secret string) (relay.Actor, error) {
	return s.credentialOwner(ctx, relay.ActorUser, "sessions", allOfAccount+`, x.expires_at, x.created_at`,
		`x.hash = ? AND x.expires_at > ?`, Hash(secret), db.Micros(s.db.Now()))
}

// Sessions lists the dashboard logins of the actor's account.
func (s *Store) Sessions(ctx context.Context, who relay.Actor) ([]relay.Session, error) {
	fields := func(x *relay.Session) []any {
		return []any{&x.ID, &x.Account, (*db.Time)(&x.CreatedAt), (*db.Time)(&x.LastUsedAt), (*db.Time)(&x.ExpiresAt), &x.Remote, &x.UserAgent}
	}
	return credentials(ctx, s, who, "", fields, `SELECT x.id, x.account_id, x.created_at, x.last_used_at, x.expires_at, x.remote, x.user_agent
		FROM sessions x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0 WHERE x.expires_at > ? AND `, db.Micros(s.db.Now()))
}

// RemoveSession ends a login of the actor's account by its id.
func (s *Store) RemoveSession(ctx context.Context, who relay.Actor, id string) error {
	return s.removeCredential(ctx, who, allowAccount(who, relay.ScopeAccount), who.Kind == relay.ActorSystem, "session", `''`, `id = ?`, id)
}

// EndSession logs out: it ends the session of a secret. It succeeds if there is no such session.
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

// Kinds and lifetimes of one-time links.
const (
	linkLogin     = "login"
	linkInvite    = "invite"
	loginLinkLife = 15 * time.Minute
	inviteLife    = 3 * 24 * time.Hour
)

// CreateLoginLink returns the secret of a one-time login to the account user ("" = the actor's own;
// only the operator may name another). ttl 0 = 15 minutes, which is also the maximum.
func (s *Store) CreateLoginLink(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (string, error) {
	may := allowAccount(who, relay.ScopeAccount)
	if may == nil && user != "" && user != who.AccountName && who.Kind != relay.ActorSystem {
		may = relay.Errorf(relay.CodeForbidden, "a login link for another account is made by relayd login-link or as an invite")
	}
	return s.createLink(ctx, who, may, user, linkLogin, ttl, loginLinkLife)
}

// CreateInvite returns the secret with which a new user joins an account; for admins. ttl 0 = 3 days,
// which is also the maximum.
func (s *Store) CreateInvite(ctx context.Context, who relay.Actor, user string, ttl time.Duration) (string, error) {
	return s.createLink(ctx, who, AllowAdmin(who), user, linkInvite, ttl, inviteLife)
}

func (s *Store) createLink(ctx context.Context, who relay.Actor, may error, user, kind string, ttl, most time.Duration) (string, error) {
	if ttl <= 0 || ttl > most {
		ttl = most
	}
	secret := NewSecret("")
	err := s.db.UpdateIf(ctx, may, "create "+kind+" link", func(c *db.Tx) error {
		account, err := subjectOf(c.Query, who, user)
		if err != nil {
			return err
		}
		if err := HoldAccount(c, account.ID); err != nil {
			return err
		}
		now := s.db.Now()
		c.Do(`INSERT INTO links (hash, account_id, kind, created_at, expires_at) VALUES (?, ?, ?, ?, ?)`,
			Hash(secret), account.ID, kind, db.Micros(now), db.Micros(now.Add(ttl)))
		return Audit(c, who, account.ID, kind+".add", account.Name, "")
	})
	return secret, err
}

// RemoveLink ends a login link or an invitation that was not used yet, by its secret. It returns the kind of
// the link and the name of its account. Only an admin may do this.
func (s *Store) RemoveLink(ctx context.Context, who relay.Actor, secret string) (kind, user string, err error) {
	err = s.db.UpdateIf(ctx, AllowAdmin(who), "remove link", func(c *db.Tx) error {
		var account int64
		if err := c.Row(`DELETE FROM links WHERE hash = ? AND expires_at > ? RETURNING kind, account_id, (SELECT name FROM accounts WHERE accounts.id = links.account_id)`,
			Hash(secret), db.Micros(c.Now())).Scan(&kind, &account, &user); err != nil {
			return err
		}
		return Audit(c, who, account, kind+".remove", user, "")
	})
	return kind, user, err
}

// linkQuery selects the account of a link of one of two kinds.
const linkQuery = `SELECT o.id, o.name, o.admin, o.created_at, o.max_storage, o.max_queue FROM links x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0
	WHERE x.hash = ? AND x.expires_at > ? AND x.kind IN (?, ?)`

// LoginLink looks up a login link or an invitation without using it. The error is ErrNotFound for
// unknown, used and expired links.
func (s *Store) LoginLink(ctx context.Context, secret string) (relay.Account, error) {
	return s.linkAccount(ctx, secret, linkLogin)
}

// Invite looks up an invitation without using it. The error is ErrNotFound for unknown, used and
// expired invitations.
func (s *Store) Invite(ctx context.Context, secret string) (relay.Account, error) {
	return s.linkAccount(ctx, secret, linkInvite)
}

// linkAccount reads the account of a link of the given kind, or of an invitation.
func (s *Store) linkAccount(ctx context.Context, secret, kind string) (relay.Account, error) {
	return db.Read(ctx, s.db, "read link", func(q db.Query) (relay.Account, error) {
		return db.RowOf(q, accountFields, linkQuery, Hash(secret), db.Micros(s.db.Now()), kind, linkInvite)
	})
}

// UseLoginLink uses up a login link or an invitation and opens a dashboard session for its account. If
// several clients use a link at the same time, one of them succeeds.
func (s *Store) UseLoginLink(ctx context.Context, secret, remote, userAgent string) (sessionSecret string, acc relay.Account, err error) {
	return s.useLink(ctx, linkLogin, secret, remote, userAgent, nil)
}

// useLink uses up a link of a kind, or an invitation, and opens a dashboard session for its account. If
// key is not nil, it first registers the key.
func (s *Store) useLink(ctx context.Context, kind, secret, remote, userAgent string, key *relay.Key) (sessionSecret string, acc relay.Account, err error) {
	sessionSecret = NewSecret("")
	err = s.db.Update(ctx, "use link", func(c *db.Tx) (err error) {
		id, now := NewName("ses_"), c.Now()
		if acc, err = db.RowOf(c.Query, accountFields, linkQuery, Hash(secret), db.Micros(now), kind, linkInvite); err != nil {
			return err
		}
		if err := HoldAccount(c, acc.ID); err != nil {
			return err
		}
		if err := c.RequireRow(relay.ErrNotFound, `DELETE FROM links WHERE hash = ?`, Hash(secret)); err != nil {
			return err
		}
		who := relay.Actor{Kind: relay.ActorUser, Account: acc.ID, Name: acc.Name}
		if key != nil {
			if err := insertKey(c, who, acc, key); err != nil {
				own, failed := c.Exists(`SELECT 1 FROM keys WHERE fingerprint = ? AND account_id = ?`, key.Fingerprint, acc.ID)
				if failed != nil || !own {
					return err
				}
			}
		}
		c.Do(`INSERT INTO sessions (id, hash, account_id, created_at, last_used_at, expires_at, remote, user_agent) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			id, Hash(sessionSecret), acc.ID, db.Micros(now), db.Micros(now), db.Micros(now.Add(sessionLife)), truncateName(remote), truncateName(userAgent))
		return Audit(c, who, acc.ID, "session.add", id, truncateName(remote))
	})
	return sessionSecret, acc, err
}

// UseInvite uses up an invitation: it registers a public key, one authorized_keys line, for the invited
// account and opens a dashboard session. A key that the account already has is accepted. If the key is
// refused (validation-failed, or conflict for a key of another account), the invitation stays valid.
func (s *Store) UseInvite(ctx context.Context, secret, keyLine, remote, userAgent string) (sessionSecret string, acc relay.Account, err error) {
	key, err := newKey("", keyLine)
	if err != nil {
		return "", acc, err
	}
	return s.useLink(ctx, linkInvite, secret, remote, userAgent, &key)
}
