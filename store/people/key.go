package people

import (
	"cmp"
	"context"
	"crypto/rsa"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
	"relay/store/db"
)

const keyQuery = `SELECT x.id, x.account_id, o.name, x.name, x.fingerprint, x.type, x.authorized_key, x.created_at, x.last_used_at
	FROM keys x JOIN accounts o ON o.id = x.account_id AND o.removed_at = 0 WHERE `

func keyFields(k *relay.Key) []any {
	return []any{
		&k.ID, &k.Account, &k.AccountName, &k.Name, &k.Fingerprint, &k.Type, &k.AuthorizedKey, (*db.Time)(&k.CreatedAt), (*db.Time)(&k.LastUsedAt),
	}
}

// KeyOwner returns the actor of a registered key; ErrNotFound if it is unknown.
func (s *Store) KeyOwner(ctx context.Context, fingerprint string) (relay.Actor, error) {
	return s.credentialOwner(ctx, relay.ActorSSH, "keys", allOfAccount+`, 0, 0`, `x.fingerprint = ?`, db.StorableText(fingerprint))
}

// AddKey registers a public key, one authorized_keys line, for the account user ("" = the actor's
// own). If name is "", it uses the comment of the line.
func (s *Store) AddKey(ctx context.Context, who relay.Actor, user, name, authorizedKey string) (relay.Key, error) {
	key, err := newKey(name, authorizedKey)
	may := cmp.Or(allowAccount(who, relay.ScopeAccount), s.requireFreshLogin(who), err)
	err = s.db.UpdateIf(ctx, may, "add key", func(c *db.Tx) error {
		account, err := subjectOf(c.Query, who, user)
		if err != nil {
			return err
		}
		return insertKey(c, who, account, &key)
	})
	return key, err
}

// newKey returns the key in an authorized_keys line, without its account. If name is "", it uses the
// comment of the line. It refuses a given name with unprintable characters. In a comment it escapes
// them, because a program wrote the comment.
func newKey(name, authorizedKey string) (relay.Key, error) {
	public, comment, err := parseKey(authorizedKey)
	if err != nil {
		return relay.Key{}, err
	}
	if name == "" {
		name = record.SafeText(comment)
	} else if fault := record.NameFault(name); fault != "" {
		return relay.Key{}, Invalid("name", nil, fault)
	}
	return relay.Key{
		ID: NewName("key_"), Name: truncateName(name), Fingerprint: ssh.FingerprintSHA256(public), Type: public.Type(),
		AuthorizedKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))), CreatedAt: time.Now().UTC().Truncate(time.Microsecond),
	}, nil
}

// insertKey registers a key for an account; the error is conflict if any account has it.
func insertKey(c *db.Tx, who relay.Actor, account relay.Account, k *relay.Key) error {
	if err := HoldAccount(c, account.ID); err != nil {
		return err
	}
	k.Account, k.AccountName = account.ID, account.Name
	taken := relay.Errorf(relay.CodeConflict, "the key %s is registered already", k.Fingerprint)
	if err := c.RequireRow(taken, `INSERT INTO keys (id, account_id, name, fingerprint, type, authorized_key, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		k.ID, k.Account, k.Name, k.Fingerprint, k.Type, k.AuthorizedKey, db.Micros(k.CreatedAt)); err != nil {
		return err
	}
	return Audit(c, who, k.Account, "key.add", k.Fingerprint, k.Name)
}

// parseKey reads one authorized_keys line. It accepts only key types that are strong enough to identify
// an account without a password.
func parseKey(line string) (ssh.PublicKey, string, error) {
	public, comment, options, rest, err := ssh.ParseAuthorizedKey(record.DecodeText([]byte(line)))
	switch {
	case err != nil:
		return nil, "", Invalid("key", nil, "this is not an SSH public key; give the line of a .pub file, such as ssh-ed25519 AAAA…")
	case len(options) > 0:
		return nil, "", Invalid("key", nil, "options before the key are not supported")
	case strings.TrimSpace(string(rest)) != "":
		return nil, "", Invalid("key", nil, "one key at a time")
	}
	switch public.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKECDSA256:
		return public, comment, nil
	case ssh.KeyAlgoRSA:
		if k, ok := public.(ssh.CryptoPublicKey).CryptoPublicKey().(*rsa.PublicKey); ok && k.N.BitLen() >= 2048 && k.N.BitLen() <= 8192 {
			return public, comment, nil
		}
		return nil, "", Invalid("key", nil, "RSA keys need 2048 to 8192 bits; make a new one: ssh-keygen -t ed25519")
	}
	return nil, "", Invalid("key", public.Type(), "this kind of key is not accepted; make one by ssh-keygen -t ed25519")
}

// truncateName shortens a text of a user to a name for lists.
func truncateName(name string) string {
	const most = 200
	name = db.StorableText(strings.TrimSpace(name))
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "")
	}
	return name
}

// Keys lists the keys of the account user; "" = the actor's own account, or for the operator all keys.
func (s *Store) Keys(ctx context.Context, who relay.Actor, user string) ([]relay.Key, error) {
	return credentials(ctx, s, who, user, keyFields, keyQuery)
}

// RemoveKey revokes a key by id or fingerprint: a key of the actor, or for admins of any account.
// Connections that were opened with the key are cut.
func (s *Store) RemoveKey(ctx context.Context, who relay.Actor, id string) error {
	may := cmp.Or(allowAccount(who, relay.ScopeAccount), s.requireFreshLogin(who))
	return s.removeCredential(ctx, who, may, who.Admin, "key", `fingerprint`, `? IN (id, fingerprint)`, id)
}
