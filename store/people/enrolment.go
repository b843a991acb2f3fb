package people

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"strings"

	"relay"
	"relay/store/db"
)

// enrolTries is the number of wrong codes that end an enrolment.
const enrolTries = 5

// enrolmentRow is an enrolment with the hash of its link and code.
type enrolmentRow struct {
	relay.Enrolment
	Proof []byte
	Tries int
}

// waitingEnrolment returns the enrolment of a link if it still waits for approval.
func waitingEnrolment(q db.Query, link, lock string) (enrolmentRow, error) {
	fields := func(e *enrolmentRow) []any {
		return []any{&e.Proof, &e.Tries, &e.Fingerprint, &e.AuthorizedKey, &e.Remote, &e.Client, (*db.Time)(&e.RequestedAt), (*db.Time)(&e.ExpiresAt)}
	}
	e, err := db.RowOf(q, fields, `SELECT proof, tries, fingerprint, authorized_key, remote, client, requested_at, expires_at
		FROM enrolments WHERE hash = ? AND ended = '' AND expires_at > ?`+lock, Hash(link), db.Micros(q.Now()))
	e.Link = link
	e.KeyType, _, _ = strings.Cut(e.AuthorizedKey, " ")
	return e, err
}

// AddEnrolment stores a key whose client has proven that it has the private key. The key waits for
// approval until e.ExpiresAt. It returns the link and the code with which a user approves the key at
// any node. e holds the authorized_keys line and the data of the client. An earlier enrolment of the
// same key ends.
func (s *Store) AddEnrolment(ctx context.Context, e relay.Enrolment) (link, code string, err error) {
	key, err := newKey("", e.AuthorizedKey)
	if err != nil {
		return "", "", err
	}
	link, code = strings.ToLower(rand.Text() + rand.Text())[:32], newCode() // the link is a secret of 160 bits
	err = s.db.Update(ctx, "add enrolment", func(c *db.Tx) error {
		c.LockText("enrolment", key.Fingerprint) // if a key is enrolled twice at once, the later enrolment replaces the earlier one
		n, err := c.Exec(`UPDATE enrolments SET ended = ? WHERE fingerprint = ? AND ended = ''`, relay.EnrolmentReplaced, key.Fingerprint)
		if err != nil {
			return err
		}
		if n > 0 {
			c.Announce(relay.Change{Kind: relay.ChangeEnrolment, Credential: key.Fingerprint})
		}
		c.Do(`INSERT INTO enrolments (hash, proof, fingerprint, authorized_key, remote, client, requested_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			Hash(link), proof(link, code), key.Fingerprint, key.AuthorizedKey, db.StorableText(e.Remote), db.StorableText(e.Client),
			db.Micros(e.RequestedAt), db.Micros(e.ExpiresAt))
		return nil
	})
	return link, code, err
}

// Enrolment returns the waiting enrolment of a link; ErrNotFound if none is waiting.
func (s *Store) Enrolment(ctx context.Context, link string) (relay.Enrolment, error) {
	return db.Read(ctx, s.db, "read enrolment", func(q db.Query) (relay.Enrolment, error) {
		e, err := waitingEnrolment(q, link, "")
		return e.Enrolment, err
	})
}

// ApproveEnrolment registers the waiting key of a link for the actor's account, if the code is the one
// shown to the holder of the key. A wrong code is validation-failed, and the fifth one ends the
// enrolment. The error is ErrNotFound if no key waits. After any other error, such as conflict for a key that
// is registered already, the key continues to wait.
func (s *Store) ApproveEnrolment(ctx context.Context, who relay.Actor, link, code string) error {
	var wrong string
	may := cmp.Or(allowAccount(who, relay.ScopeAccount), s.requireFreshLogin(who))
	err := s.db.UpdateIf(ctx, may, "approve enrolment", func(c *db.Tx) error {
		e, err := waitingEnrolment(c.Query, link, c.Dialect.ForUpdate())
		if err != nil {
			return err
		}
		ended := relay.EnrolmentApproved
		wrong = ""
		if subtle.ConstantTimeCompare(e.Proof, proof(link, plainCode(code))) != 1 {
			ended, wrong = "", "this is not the code that the ssh command shows; look there and type it again"
			if e.Tries+1 >= enrolTries {
				ended, wrong = relay.EnrolmentMistyped, "this was the last of five wrong codes, so the key waits no more; run the ssh command again for a new link"
			}
		} else {
			account, err := subjectOf(c.Query, who, "")
			if err != nil {
				return err
			}
			key, err := newKey("ssh from "+e.Remote, e.AuthorizedKey)
			if err != nil {
				return err
			}
			if err := insertKey(c, who, account, &key); err != nil {
				return err
			}
		}
		c.Do(`UPDATE enrolments SET ended = ?, tries = tries + 1 WHERE hash = ?`, ended, Hash(link))
		if ended != "" {
			c.Announce(relay.Change{Kind: relay.ChangeEnrolment, Credential: e.Fingerprint})
		}
		return nil
	})
	if err != nil || wrong == "" {
		return err
	}
	return &relay.Error{Code: relay.CodeValidationFailed, Detail: wrong, Fields: []relay.FieldError{{Location: "body.code", Message: wrong}}}
}

// EndEnrolment ends an enrolment, unless it has ended, and returns its result. The parameter how is the
// result to store; if it is "", EndEnrolment changes nothing and returns the stored result, or "" while the
// key waits.
func (s *Store) EndEnrolment(ctx context.Context, link, how string) (ended string, err error) {
	const query = `SELECT ended FROM enrolments WHERE hash = ?`
	if how == "" {
		err = s.db.View(ctx, "read enrolment", func(q db.Query) error { return q.Get(&ended, query, Hash(link)) })
		return ended, err
	}
	err = s.db.Update(ctx, "end enrolment", func(c *db.Tx) error {
		c.Do(`UPDATE enrolments SET ended = ? WHERE hash = ? AND ended = ''`, how, Hash(link))
		return c.Get(&ended, query, Hash(link))
	})
	return ended, err
}

// proof returns the hash that a code is checked with. The database does not reveal the code, because
// the hash covers the link too, which is not in the database.
func proof(link, code string) []byte { return Hash(link + " " + code) }

// codeLetters are 32 characters that are hard to confuse: no 0 1 I O.
const codeLetters = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"

// newCode returns a random code of 8 letters, 40 bits, independent of the link.
func newCode() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	for i := range b {
		b[i] = codeLetters[b[i]%32]
	}
	return string(b[:])
}

// plainCode returns a code in its original form from a user's input.
func plainCode(typed string) string {
	if len(typed) > 64 {
		return ""
	}
	return strings.ToUpper(strings.NewReplacer("-", "", " ", "", "\t", "").Replace(typed))
}
