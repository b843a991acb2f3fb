package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"relay"
	"relay/record"
	"relay/signature"
	"relay/store/db"
	"relay/store/seal"
)

// A secret of a sender is stored encrypted. Its value leaves this file only as a relay.SecretText.

// sealPurpose is the purpose that the encryption of a sender's secret is bound to, together with the alias
// and the row.
const sealPurpose = "sender-secret"

// maxSecretPath bounds the path prefix of a secret, in bytes.
const maxSecretPath = 1024

// sealedQuery reads the encrypted secrets and verify tokens of aliases, without those that an earlier owner added.
// secretQuery reads only the secrets of senders.
const (
	sealedQuery = `SELECT x.id, x.provider, x.custom, x.path, x.sign, x.created_at, x.created_by, x.last_valid_at, x.alias_id, x.key_id, x.sealed
	FROM sender_secrets x JOIN aliases al ON al.id = x.alias_id AND al.owner_id = x.owner_id WHERE `
	secretQuery = sealedQuery + `x.provider <> '` + verifyToken + `' AND `
)

// sealedSecret is a secret as it is stored.
type sealedSecret struct {
	relay.SenderSecret
	alias  int64
	key    string
	sealed []byte
}

func secretFields(s *sealedSecret) []any {
	return []any{
		&s.ID, &s.Provider, &s.Custom, &s.Path, &s.Sign, (*db.Time)(&s.CreatedAt), &s.CreatedBy, (*db.Time)(&s.LastValidAt), &s.alias, &s.key, &s.sealed,
	}
}

func placeOfSecret(alias int64, id string) seal.Place {
	return seal.Place{Purpose: sealPurpose, Alias: alias, Row: id}
}

// Secrets lists the secrets of an alias without their values, the oldest first.
func (s *Store) Secrets(ctx context.Context, who relay.Actor, alias string) ([]relay.SenderSecret, error) {
	if err := Allow(who, relay.ScopeAliasesRead); err != nil {
		return nil, err
	}
	return db.Read(ctx, s.db, "read secrets of senders", func(q db.Query) ([]relay.SenderSecret, error) {
		a, err := FindAlias(q, who, alias)
		if err != nil {
			return nil, err
		}
		rows, err := db.RowsOf(q, secretFields, secretQuery+`x.alias_id = ? ORDER BY x.created_at, x.id`, a.ID)
		list := make([]relay.SenderSecret, len(rows))
		for i := range rows {
			list[i] = rows[i].SenderSecret
		}
		return list, err
	})
}

// AddSecret encrypts and stores a secret of a sender. Only the owner of the alias may do this, and a
// dashboard session only soon after its login.
func (s *Store) AddSecret(ctx context.Context, who relay.Actor, alias string, want relay.SenderSecret, value relay.SecretText) (made relay.SenderSecret, err error) {
	if err := cmp.Or(Allow(who, relay.ScopeAliasesWrite), s.requireFreshLogin(who), s.ownsAlias(ctx, who, alias), checkSecret(&want, value.Reveal())); err != nil {
		return made, err
	}
	if err := s.haveKey(ctx); err != nil {
		return made, err
	}
	err = s.db.Update(ctx, "add secret of a sender", func(c *db.Tx) error {
		a, err := ownAliasForUpdate(c, who, alias)
		if err != nil {
			return err
		}
		var have int
		if err := c.Get(&have, `SELECT COUNT(*) FROM sender_secrets WHERE alias_id = ? AND owner_id = ? AND provider <> ?`, a.ID, a.Owner, verifyToken); err != nil {
			return err
		}
		if have >= relay.MaxSecrets {
			return relay.Errorf(relay.CodeConflict, "%s has %d secrets already, the most it may have; remove one first", a.Name, have)
		}
		row := want
		row.ID, row.CreatedAt, row.CreatedBy, row.LastValidAt = NewName("sec_"), c.Now(), db.StorableText(who.String()), time.Time{}
		sealed, key, err := s.opt.Keys.Seal(value.Reveal(), placeOfSecret(a.ID, row.ID))
		if err != nil {
			return secretUnavailable(err)
		}
		c.Do(`INSERT INTO sender_secrets (id, alias_id, owner_id, provider, custom, path, sign, key_id, sealed, created_at, created_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			row.ID, a.ID, a.Owner, row.Provider, row.Custom, row.Path, db.BoolToInt(row.Sign), key, sealed, db.Micros(row.CreatedAt), row.CreatedBy)
		c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID})
		stored, err := db.RowOf(c.Query, secretFields, secretQuery+`x.id = ?`, row.ID)
		if err != nil {
			return err
		}
		made = stored.SenderSecret
		return Audit(c, who, a.Owner, "secret.add", made.ID, secretDetail(a.Name, &made))
	})
	return made, err
}

// ownsAlias returns an error for an alias that the actor does not own. AddSecret calls it first, so that
// other actors do not get errors about the secret.
func (s *Store) ownsAlias(ctx context.Context, who relay.Actor, alias string) error {
	return s.db.View(ctx, "read alias", func(q db.Query) error {
		_, err := ownAlias(q, who, alias)
		return err
	})
}

// secretDetail returns the detail of an audit entry about a secret.
func secretDetail(alias string, s *relay.SenderSecret) string {
	detail := alias + " " + s.Provider
	if s.Path != "" {
		detail += " " + s.Path
	}
	if s.Sign {
		detail += " sign"
	}
	return detail
}

// checkSecret returns an error if a value cannot be a secret of its sender. The error never contains a
// part of the value.
func checkSecret(s *relay.SenderSecret, value string) error {
	if s.Provider == signature.CustomName {
		return checkCustom(s, value)
	}
	switch {
	case s.Custom != "":
		return Invalid("custom", nil, "a definition goes with the provider custom alone")
	case signature.Find(s.Provider, nil) == nil:
		return Invalid("provider", s.Provider, "no sender of that name is known; "+nearestSender(s.Provider))
	case !validSecretPath(s.Path):
		return invalidPath()
	case s.Sign && !signature.SignsAny(s.Provider):
		return Invalid("sign", s.Sign, "requests of "+s.Provider+" can be verified, but not signed: the private key is the sender's")
	}
	if err := signature.CheckSecret(s.Provider, value); err != nil {
		return Invalid("secret", nil, err.Error())
	}
	return nil
}

// checkCustom returns an error for an invalid definition of a scheme, and for a value that cannot be
// its secret.
func checkCustom(s *relay.SenderSecret, value string) error {
	if s.Custom == "" {
		return Invalid("custom", nil, "the provider custom needs a definition: at least header and template")
	}
	p, err := signature.ReadCustom([]byte(s.Custom))
	if err != nil {
		member := "custom"
		if bad, ok := errors.AsType[*signature.CustomError](err); ok && bad.Member != "" {
			member += "." + bad.Member
		}
		return Invalid(member, nil, err.Error())
	}
	if !validSecretPath(s.Path) {
		return invalidPath()
	}
	if err := p.CheckSecret(value); err != nil {
		return Invalid("secret", nil, err.Error())
	}
	return nil
}

func validSecretPath(path string) bool {
	return path == "" || path[0] == '/' && len(path) <= maxSecretPath && !strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == 0x7f || r > 0xfffd })
}

func invalidPath() error {
	return Invalid("path", nil, fmt.Sprintf("a path prefix begins with /, has no spaces and at most %d bytes", maxSecretPath))
}

func nearestSender(typed string) string {
	if near := record.Nearest(typed, record.ProviderNames()); near != "" {
		return "did you mean " + near + "?"
	}
	return "the list of providers names all"
}

// haveKey makes a key before the first secret is stored, if this node serves the store alone. If there are
// secrets encrypted with another key, it makes none, because that key must be restored and not replaced.
func (s *Store) haveKey(ctx context.Context) error {
	keys, err := s.opt.Keys.Keys()
	if err != nil || len(keys) > 0 {
		return secretUnavailable(err)
	}
	others, err := s.SecretKeyUse(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		return secretUnavailable(seal.ErrOther)
	}
	alone, err := s.opt.Alone(ctx)
	if err != nil {
		return err
	}
	if !alone {
		return secretUnavailable(seal.ErrNoKey)
	}
	return secretUnavailable(s.opt.Keys.Make())
}

// secretUnavailable returns the error for a secret that can be neither encrypted nor decrypted. The parameter
// why is the reason; if it is nil, secretUnavailable returns nil.
func secretUnavailable(why error) error {
	if why == nil {
		return nil
	}
	detail := "this node cannot open the secret; give it the key: relayd doctor names it"
	switch {
	case errors.Is(why, seal.ErrGone):
		detail = "the file of the key of this node is gone from its data dir; restore secret.key: a secret that is added now would be lost at the next start"
	case errors.Is(why, seal.ErrNoKey):
		detail = "this node has no key to encrypt secrets with; set --secret-key to the same key on every node: relayd secret-key new prints one"
	}
	return &relay.Error{Code: relay.CodeSecretUnavailable, Detail: detail, Cause: why}
}

// RemoveSecret deletes a secret of an alias, for its owner.
func (s *Store) RemoveSecret(ctx context.Context, who relay.Actor, alias, id string) error {
	may := cmp.Or(Allow(who, relay.ScopeAliasesWrite), s.requireFreshLogin(who))
	return s.db.UpdateIf(ctx, may, "remove secret of a sender", func(c *db.Tx) error {
		a, err := ownAliasForUpdate(c, who, alias)
		if err != nil {
			return err
		}
		gone, err := db.RowOf(c.Query, secretFields, secretQuery+`x.alias_id = ? AND x.id = ?`, a.ID, db.StorableText(id))
		if err != nil {
			return err
		}
		c.Do(`DELETE FROM sender_secrets WHERE id = ?`, gone.ID)
		c.Announce(relay.Change{Kind: relay.ChangeAlias, Alias: a.ID})
		return Audit(c, who, a.Owner, "secret.remove", gone.ID, secretDetail(a.Name, &gone.SenderSecret))
	})
}

// SecretAlias returns the name of the alias of a secret, for the operator and admins.
func (s *Store) SecretAlias(ctx context.Context, who relay.Actor, id string) (name string, err error) {
	if err := AllowAdmin(who); err != nil {
		return "", err
	}
	err = s.db.View(ctx, "read secret of a sender", func(q db.Query) error {
		return q.Get(&name, `SELECT al.name FROM sender_secrets x JOIN aliases al ON al.id = x.alias_id WHERE x.id = ? AND x.provider <> ?`, db.StorableText(id), verifyToken)
	})
	return name, err
}

// OpenSecrets returns all secrets of an alias with their values, the oldest first. It checks no rights,
// because the server itself verifies requests with them.
func (s *Store) OpenSecrets(ctx context.Context, alias int64) (relay.OpenSecrets, error) {
	rows, err := db.ReadRows(ctx, s.db, "read secrets of senders", secretFields, secretQuery+`x.alias_id = ? ORDER BY x.created_at, x.id`, alias)
	return s.open(rows), err
}

// AllOpenSecrets returns the secrets of all aliases with their values, by the id of the alias.
func (s *Store) AllOpenSecrets(ctx context.Context) (map[int64]relay.OpenSecrets, error) {
	rows, err := db.ReadRows(ctx, s.db, "read secrets of senders", secretFields, secretQuery+`1 = 1 ORDER BY x.created_at, x.id`)
	out := map[int64]relay.OpenSecrets{}
	for i, secret := range s.open(rows) {
		out[rows[i].alias] = append(out[rows[i].alias], secret)
	}
	return out, err
}

func (s *Store) open(rows []sealedSecret) relay.OpenSecrets {
	list := make(relay.OpenSecrets, len(rows))
	for i := range rows {
		x := &rows[i]
		value, err := s.opt.Keys.Open(x.sealed, x.key, placeOfSecret(x.alias, x.ID))
		list[i] = relay.OpenSecret{SenderSecret: x.SenderSecret, Value: relay.NewSecretText(value), Sealed: err != nil}
	}
	return list
}

// SigningSecret returns the secret, with its value, that signs a new request; see relay.SecretOpener.
func (s *Store) SigningSecret(ctx context.Context, alias int64, provider, target, id string, fits func(secret string) bool) (found relay.OpenSecret, err error) {
	list, err := s.OpenSecrets(ctx, alias)
	if err != nil {
		return found, err
	}
	ok, fit := false, false
	for _, x := range list {
		switch {
		case !x.Sign, id != "" && x.ID != id, x.Provider != provider, id == "" && !strings.HasPrefix(target, x.Path): // a secret without Sign may not sign: some senders send the secret itself
			continue
		}
		fitsNow := x.Sealed || fits(x.Value.Reveal())
		if !ok || fitsNow && !fit || fitsNow == fit && len(x.Path) >= len(found.Path) {
			found, ok, fit = x, true, fitsNow
		}
	}
	switch {
	case !ok && id != "":
		return found, relay.Errorf(relay.CodeNoSigningSecret, "the alias has no secret %s of %s that may sign; add one with sign, or name another one", record.SafeTextMax(id, 60), record.SafeTextMax(provider, 60))
	case !ok:
		return found, relay.Errorf(relay.CodeNoSigningSecret, "the alias has no secret of %s that may sign requests to this path; its owner can add one with sign", record.SafeTextMax(provider, 60))
	case found.Sealed:
		return found, secretUnavailable(seal.ErrOther)
	}
	return found, nil
}

// NoteSigned implements relay.SecretOpener.
func (s *Store) NoteSigned(ctx context.Context, who relay.Actor, alias int64, x relay.SenderSecret) error {
	return s.db.Update(ctx, "note a signature", func(c *db.Tx) error {
		return AuditOfAlias(c, who, alias, "secret.sign", x.ID, x.Provider)
	})
}

// secretUsed is the shortest time between two updates of the last use of a secret.
const secretUsed = time.Minute

// NoteValid stores the time at which a secret has verified a request. It does nothing if the verdict is nil
// or not valid. It does not block; the time is written within seconds.
func (s *Store) NoteValid(judged *relay.Signature, at time.Time) {
	if judged == nil || judged.SecretID == "" || judged.Reason != "ok" {
		return
	}
	id := judged.SecretID
	s.late.putOnce("secret "+id, secretUsed, func(c *db.Tx) error {
		c.Do(`UPDATE sender_secrets SET last_valid_at = ? WHERE id = ? AND last_valid_at < ?`, db.Micros(at), id, db.Micros(at))
		return nil
	})
}

// SecretKeyUse returns the number of secrets that each key has encrypted, by the id of the key. It counts the
// rows that sealedQuery reads.
func (s *Store) SecretKeyUse(ctx context.Context) (map[string]int, error) {
	type use struct {
		key string
		n   int
	}
	fields := func(u *use) []any { return []any{&u.key, &u.n} }
	list, err := db.ReadRows(ctx, s.db, "count secrets", fields, `SELECT x.key_id, COUNT(*) FROM sender_secrets x
		JOIN aliases al ON al.id = x.alias_id AND al.owner_id = x.owner_id GROUP BY x.key_id`)
	out := map[string]int{}
	for _, u := range list {
		out[u.key] = u.n
	}
	return out, err
}

// SecretKeys returns the keys of this node, which encrypt and decrypt secrets of senders.
func (s *Store) SecretKeys() *seal.Ring { return s.opt.Keys }

// ResealSecrets encrypts every secret again with the first key, for the operator. It returns the number of
// these secrets, and the number of secrets that no key of this node decrypts, which stay unchanged.
func (s *Store) ResealSecrets(ctx context.Context, who relay.Actor) (sealed, left int, err error) {
	err = s.db.UpdateIf(ctx, AllowAdmin(who), "seal secrets again", func(c *db.Tx) error {
		sealed, left = 0, 0
		rows, err := db.RowsOf(c.Query, secretFields, sealedQuery+`1 = 1 ORDER BY x.id`)
		if err != nil {
			return err
		}
		for _, x := range rows {
			place := placeOfSecret(x.alias, x.ID)
			value, err := s.opt.Keys.Open(x.sealed, x.key, place)
			if err != nil {
				left++
				continue
			}
			again, key, err := s.opt.Keys.Seal(value, place)
			if err != nil {
				return secretUnavailable(err)
			}
			c.Do(`UPDATE sender_secrets SET sealed = ?, key_id = ? WHERE id = ? AND sealed = ?`, again, key, x.ID, x.sealed) // a row stays unchanged if its verify token was replaced meanwhile
			sealed++
		}
		return Audit(c, who, 0, "secret-key.rotate", "", fmt.Sprintf("%d sealed again", sealed))
	})
	return sealed, left, err
}
