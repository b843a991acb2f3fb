package people

import (
	"context"
	"fmt"

	"relay"
	"relay/store/db"
)

// The verify token of an alias is a row among the secrets of senders, so that it is encrypted, encrypted
// again with a new key, and deleted like them. It is not a secret of a sender: it is neither listed nor
// counted, and verifies no request.

// verifyToken is the provider in the row of a verify token; no sender has this name.
const verifyToken = "verify-token"

// keptToken is the destination of a column that tells whether an alias has a verify token.
type keptToken struct{ to **relay.SecretText }

// Scan implements sql.Scanner.
func (t keptToken) Scan(stored any) error {
	switch v := stored.(type) {
	case bool:
		t.set(v)
	case int64:
		t.set(v != 0)
	default:
		return fmt.Errorf("a %T where a truth value is selected", stored)
	}
	return nil
}

func (t keptToken) set(kept bool) {
	*t.to = nil
	if kept {
		*t.to = new(relay.SecretText)
	}
}

// keepToken encrypts and stores a verify token in place of the previous one; nil removes the previous one.
func (s *Store) keepToken(c *db.Tx, who relay.Actor, a *relay.Alias, token *relay.SecretText) error {
	id := fmt.Sprint("token_", a.ID) // an alias has at most one verify token
	c.Do(`DELETE FROM sender_secrets WHERE id = ?`, id)
	if token == nil {
		return nil
	}
	sealed, key, err := s.opt.Keys.Seal(token.Reveal(), placeOfSecret(a.ID, id))
	if err != nil {
		return secretUnavailable(err)
	}
	c.Do(`INSERT INTO sender_secrets (id, alias_id, owner_id, provider, custom, path, sign, key_id, sealed, created_at, created_by) VALUES (?, ?, ?, ?, '', '', 0, ?, ?, ?, ?)`,
		id, a.ID, a.Owner, verifyToken, key, sealed, db.Micros(c.Now()), db.StorableText(who.String()))
	return nil
}

// openTokens fills in the verify tokens of aliases. If no key of this node decrypts a token, it stays empty.
func (s *Store) openTokens(ctx context.Context, list []relay.Alias) error {
	at := map[int64]*relay.Alias{}
	for i := range list {
		if list[i].Settings.VerifyToken != nil {
			at[list[i].ID] = &list[i]
		}
	}
	if len(at) == 0 {
		return nil
	}
	where, args := `x.provider = ?`, []any{verifyToken}
	if len(list) == 1 {
		where, args = where+` AND x.alias_id = ?`, append(args, list[0].ID)
	}
	rows, err := db.ReadRows(ctx, s.db, "read verify tokens", secretFields, sealedQuery+where, args...)
	for i, opened := range s.open(rows) {
		a := at[rows[i].alias]
		switch {
		case a == nil: // the alias was not in the list
		case opened.Sealed:
			s.log.Warn("the verify token of an alias cannot be decrypted: requests of Meta and WebSub are not answered; run relayd doctor for the missing key", "alias", a.Name, "key", rows[i].key)
		default:
			a.Settings.VerifyToken = &opened.Value
		}
	}
	return err
}
