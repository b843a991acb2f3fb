package store

import (
	"context"
	"time"

	"relay"
)

const (
	idempotencyLife = 24 * time.Hour   // how long an answer is kept
	abandonedAfter  = 15 * time.Minute // age from which a call without an answer counts as never made; no call waits that long
)

type callKey struct{ credential, key string }

// BeginIdempotent remembers an Idempotency-Key; see api.Accounts. A call that began more
// than 15 minutes ago and has no answer counts as never made: the database was away when
// its answer had to be stored.
func (s *Store) BeginIdempotent(ctx context.Context, who relay.Actor, key, target string) (status int, body []byte, err error) {
	k := callKey{who.Credential, storableText(key)}
	err = s.update(ctx, "begin idempotent call", func(c *writeTx) error {
		status, body = 0, nil
		now := s.now()
		target := storableText(target)
		if _, err := c.exec(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND (created_at < ? OR status = 0 AND created_at < ?)`,
			k.credential, k.key, micros(now.Add(-idempotencyLife)), micros(now.Add(-abandonedAfter))); err != nil {
			return err
		}
		n, err := c.exec(`INSERT INTO idempotency (credential, key, target, boot, created_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			k.credential, k.key, target, s.boot, micros(now))
		if err != nil || n == 1 {
			return err
		}
		status, body, err = c.earlier(k, target)
		return err
	})
	return status, body, err
}

// earlier returns the answer of an earlier call with the key and the same target.
func (c *writeTx) earlier(k callKey, target string) (status int, body []byte, err error) {
	var row struct {
		Target string `db:"target"`
		Status int    `db:"status"`
		Body   []byte `db:"body"`
	}
	if err := c.get(&row, `SELECT target, status, body FROM idempotency WHERE credential = ? AND key = ?`, k.credential, k.key); err != nil {
		return 0, nil, err
	}
	switch {
	case row.Target != target:
		return 0, nil, relay.Errorf(relay.CodeValidationFailed, "this Idempotency-Key was used for another request")
	case row.Status == 0:
		return 0, nil, relay.Errorf(relay.CodeConflict, "the first request with this Idempotency-Key is still running")
	}
	return row.Status, row.Body, nil
}

// EndIdempotent stores the answer of a call; status 0 deletes the key, so that the call may
// be made again at once.
func (s *Store) EndIdempotent(ctx context.Context, who relay.Actor, key string, status int, body []byte) error {
	return s.update(ctx, "end idempotent call", func(c *writeTx) (err error) {
		if status == 0 {
			_, err = c.exec(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND status = 0`, who.Credential, storableText(key))
		} else {
			_, err = c.exec(`UPDATE idempotency SET status = ?, body = ? WHERE credential = ? AND key = ?`, status, nonNil(body), who.Credential, storableText(key))
		}
		return err
	})
}
