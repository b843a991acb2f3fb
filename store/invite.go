package store

import (
	"context"

	"relay"
)

const inviteQuery = linkQuery + ` AND x.kind = '` + linkInvite + `'`

// Invite looks an invitation up without using it; ErrNotFound for unknown, used and
// expired ones.
func (s *Store) Invite(ctx context.Context, secret string) (relay.Account, error) {
	var row accountRow
	err := s.view(ctx, "read invite", func(q session) error {
		return q.get(&row, inviteQuery, hash(secret), micros(s.now()))
	})
	return row.account(), err
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
	if sessionSecret, err = newSecret(""); err != nil {
		return "", acc, err
	}
	err = s.update(ctx, "use invite", func(c *writeTx) error {
		var row accountRow
		if err := c.get(&row, inviteQuery, hash(secret), micros(c.now())); err != nil {
			return err
		}
		if n, err := c.exec(`DELETE FROM links WHERE hash = ?`, hash(secret)); err != nil || n == 0 {
			return relay.ErrNotFound
		}
		acc = row.account()
		who := relay.Actor{Kind: relay.ActorUser, Account: acc.ID, Name: acc.Name}
		var own []string
		if err := c.all(&own, `SELECT id FROM keys WHERE fingerprint = ? AND account_id = ?`, key.Fingerprint, acc.ID); err != nil {
			return err
		}
		if len(own) == 0 {
			key.AccountID, key.Account = acc.ID, acc.Name
			if err := c.insertKey(who, key); err != nil {
				return err
			}
		}
		return c.openSession(who, sessionSecret, remote, userAgent)
	})
	if err != nil {
		return "", relay.Account{}, err
	}
	return sessionSecret, acc, nil
}
