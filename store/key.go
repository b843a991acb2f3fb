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
	return credentials(ctx, s, who, user, (*keyRow).key, keyQuery)
}

// credentials lists what the query selects as x, of the account user; "" is the actor's own
// account, and every account for the operator.
func credentials[R, T any](ctx context.Context, s *Store, who relay.Actor, user string, convert func(*R) T, query string, args ...any) (list []T, err error) {
	err = s.view(ctx, "read credentials", func(q session) error {
		if who.Kind != relay.ActorSystem || user != "" {
			if who.Alias != 0 || who.Kind == relay.ActorShare {
				return relay.Errorf(relay.CodeForbidden, "a token limited to one alias cannot see credentials")
			}
			a, err := q.subject(who, user)
			if err != nil {
				return err
			}
			query, args = query+`x.account_id = ? AND `, append(args, a.ID)
		}
		list, err = rowsAs(q, convert, query+`1 = 1 ORDER BY x.created_at, x.id`, args...)
		return err
	})
	return list, err
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
	return s.removeCredential(ctx, who, who.Admin, "key", `fingerprint`, `? IN (id, fingerprint)`, id)
}

// removeCredential deletes the row of the table of a kind that where selects: of the actor, or
// of anybody if all is set. It announces that, so that the connections of the credential end.
// detail is the column that goes into the audit log.
func (s *Store) removeCredential(ctx context.Context, who relay.Actor, all bool, kind, detail, where, id string) error {
	return s.update(ctx, "remove "+kind, func(c *writeTx) error {
		var gone struct {
			ID      string `db:"id"`
			Account int64  `db:"account_id"`
			Detail  string `db:"detail"`
		}
		if err := c.get(&gone, `DELETE FROM `+kind+`s WHERE `+where+` AND (account_id = ? OR 1 = ?) RETURNING id, account_id, `+detail+` AS detail`,
			storableText(id), who.Account, boolToInt(all)); err != nil {
			return err
		}
		c.announce(relay.Change{Kind: relay.ChangeAccount, Account: gone.Account, Credential: gone.ID})
		return c.audit(who, gone.Account, kind+".remove", gone.ID, gone.Detail)
	})
}
