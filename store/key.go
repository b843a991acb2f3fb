package store

import (
	"context"
	"crypto/rsa"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

type keyRow struct {
	ID            string `db:"id"`
	AccountID     int64  `db:"account_id"`
	Account       string `db:"account"`
	Admin         int    `db:"admin"`
	Name          string `db:"name"`
	Fingerprint   string `db:"fingerprint"`
	Type          string `db:"type"`
	AuthorizedKey string `db:"authorized_key"`
	CreatedAt     int64  `db:"created_at"`
	LastUsedAt    int64  `db:"last_used_at"`
}

const keyQuery = `SELECT x.id, x.account_id, o.name AS account, o.admin, x.name, x.fingerprint, x.type, x.authorized_key, x.created_at, x.last_used_at
	FROM keys x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0 WHERE `

func (r *keyRow) key() relay.Key {
	return relay.Key{
		ID: r.ID, Account: r.AccountID, AccountName: r.Account, Name: r.Name, Fingerprint: r.Fingerprint, Type: r.Type,
		AuthorizedKey: r.AuthorizedKey, CreatedAt: fromMicros(r.CreatedAt), LastUsedAt: fromMicros(r.LastUsedAt),
	}
}

// KeyOwner gives the actor of a registered key; ErrNotFound.
func (s *Store) KeyOwner(ctx context.Context, fingerprint string) (who relay.Actor, err error) {
	var row keyRow
	if err := s.view(ctx, "read key", func(q session) error {
		return q.get(&row, keyQuery+`x.fingerprint = ?`, storableText(fingerprint))
	}); err != nil {
		return who, err
	}
	s.credentialUse.record("keys", row.ID, row.LastUsedAt)
	return relay.Actor{
		Account: row.AccountID, AccountName: row.Account, Admin: row.Admin != 0, Kind: relay.ActorSSH, Name: row.Account,
		Scopes: relay.AllScopes, Credential: row.ID,
	}, nil
}

// AddKey registers a public key, one authorized_keys line, for the account user
// ("" = the actor's own). name "" takes the comment of the line.
func (s *Store) AddKey(ctx context.Context, who relay.Actor, user, name, authorizedKey string) (relay.Key, error) {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return relay.Key{}, err
	}
	if err := s.requireFreshLogin(who); err != nil {
		return relay.Key{}, err
	}
	row, err := newKey(name, authorizedKey)
	if err != nil {
		return relay.Key{}, err
	}
	err = s.update(ctx, "add key", func(c *writeTx) error {
		account, err := c.subject(who, user)
		if err != nil {
			return err
		}
		row.AccountID, row.Account = account.ID, account.Name
		return c.insertKey(who, row)
	})
	if err != nil {
		return relay.Key{}, err
	}
	return row.key(), nil
}

// newKey makes the row of an authorized_keys line, still without its account. name ""
// takes the comment of the line. A given name that cannot be shown is refused; of a comment,
// which a program wrote, what cannot be shown is escaped, and the file works.
func newKey(name, authorizedKey string) (*keyRow, error) {
	public, comment, err := parseKey(authorizedKey)
	if err != nil {
		return nil, err
	}
	if name == "" {
		name = record.SafeText(comment)
	} else if fault := record.NameFault(name); fault != "" {
		return nil, invalid("name", nil, fault)
	}
	return &keyRow{
		ID: newName("key_"), Name: truncateName(name), Fingerprint: ssh.FingerprintSHA256(public), Type: public.Type(),
		AuthorizedKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))), CreatedAt: micros(time.Now()),
	}, nil
}

// insertKey registers a key; conflict when anybody has it.
func (c *writeTx) insertKey(who relay.Actor, row *keyRow) error {
	n, err := c.exec(`INSERT INTO keys (id, account_id, name, fingerprint, type, authorized_key, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		row.ID, row.AccountID, row.Name, row.Fingerprint, row.Type, row.AuthorizedKey, row.CreatedAt)
	if err != nil {
		return err
	}
	if n == 0 {
		return relay.Errorf(relay.CodeConflict, "the key %s is registered already", row.Fingerprint)
	}
	return c.audit(who, row.AccountID, "key.add", row.Fingerprint, row.Name)
}

// parseKey reads one authorized_keys line and accepts the kinds of key that are
// good enough to be the whole identity of an account.
func parseKey(line string) (ssh.PublicKey, string, error) {
	public, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	switch {
	case err != nil:
		return nil, "", invalid("key", nil, "this is not an SSH public key; give the line of a .pub file, such as ssh-ed25519 AAAA…")
	case len(options) > 0:
		return nil, "", invalid("key", nil, "options before the key are not supported")
	case strings.TrimSpace(string(rest)) != "":
		return nil, "", invalid("key", nil, "one key at a time")
	}
	good := []string{
		ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKECDSA256,
	}
	if slices.Contains(good, public.Type()) {
		return public, comment, nil
	}
	if public.Type() == ssh.KeyAlgoRSA {
		bits := 0
		if c, ok := public.(ssh.CryptoPublicKey); ok {
			if k, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok {
				bits = k.N.BitLen()
			}
		}
		if bits >= 2048 && bits <= 8192 {
			return public, comment, nil
		}
		return nil, "", invalid("key", nil, "RSA keys need 2048 to 8192 bits; make a new one: ssh-keygen -t ed25519")
	}
	return nil, "", invalid("key", public.Type(), "this kind of key is not accepted; make one by ssh-keygen -t ed25519")
}

// truncateName makes a name that people gave fit for lists.
func truncateName(name string) string {
	const most = 200
	name = storableText(strings.TrimSpace(name))
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "")
	}
	return name
}

// Keys lists the keys of the account user, "" = the actor's own; the operator sees
// all with "".
func (s *Store) Keys(ctx context.Context, who relay.Actor, user string) ([]relay.Key, error) {
	var rows []keyRow
	err := s.view(ctx, "read keys", func(q session) error {
		where, args, err := q.owned(who, user)
		if err != nil {
			return err
		}
		return q.all(&rows, keyQuery+where+` ORDER BY x.created_at, x.id`, args...)
	})
	list := make([]relay.Key, len(rows))
	for i := range rows {
		list[i] = rows[i].key()
	}
	return list, err
}

// owned is a condition on x.account_id for a list of credentials.
func (q session) owned(who relay.Actor, user string) (string, []any, error) {
	if who.Kind == relay.ActorSystem && user == "" {
		return `1 = 1`, nil, nil
	}
	if who.Alias != 0 || who.Kind == relay.ActorShare {
		return "", nil, relay.Errorf(relay.CodeForbidden, "a token limited to one alias cannot see credentials")
	}
	a, err := q.subject(who, user)
	return `x.account_id = ?`, []any{a.ID}, err
}

// RemoveKey revokes a key by id or fingerprint: of the actor, or of anybody for
// admins. Connections that it opened are cut.
func (s *Store) RemoveKey(ctx context.Context, who relay.Actor, id string) error {
	if err := allowAccount(who, relay.ScopeAccount); err != nil {
		return err
	}
	if err := s.requireFreshLogin(who); err != nil {
		return err
	}
	return s.update(ctx, "remove key", func(c *writeTx) error {
		var row keyRow
		if err := c.get(&row, keyQuery+`(x.id = ? OR x.fingerprint = ?) AND (x.account_id = ? OR 1 = ?)`,
			storableText(id), storableText(id), who.Account, boolToInt(who.Admin)); err != nil {
			return err
		}
		return c.revoke(who, "keys", "key.remove", row.ID, row.AccountID, row.Fingerprint)
	})
}

// revoke deletes a credential and announces that, so that its connections end.
func (c *writeTx) revoke(who relay.Actor, table, action, id string, account int64, detail string) error {
	n, err := c.exec(`DELETE FROM `+table+` WHERE id = ?`, id)
	if err != nil {
		return err
	}
	if n == 0 {
		return relay.ErrNotFound
	}
	c.announce(relay.Change{Kind: relay.ChangeAccount, Account: account, Credential: id})
	return c.audit(who, account, action, id, detail)
}
