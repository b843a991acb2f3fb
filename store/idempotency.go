package store

import (
	"context"
	"time"

	"relay"
)

// idempotencyLife is how long an answer is remembered.
const idempotencyLife = 24 * time.Hour

// BeginIdempotent remembers an Idempotency-Key; see api.Accounts. A call that an
// earlier boot began and never ended counts as never made.
func (s *Store) BeginIdempotent(ctx context.Context, who relay.Actor, key, target string) (status int, body []byte, err error) {
	err = s.update(ctx, "begin idempotent call", func(c *change) error {
		status, body = 0, nil
		now := s.now()
		key, target := plain(key), plain(target)
		if _, err := c.exec(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND (created_at < ? OR status = 0 AND boot <> ?)`,
			who.Credential, key, micros(now.Add(-idempotencyLife)), s.boot); err != nil {
			return err
		}
		n, err := c.exec(`INSERT INTO idempotency (credential, key, target, boot, created_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			who.Credential, key, target, s.boot, micros(now))
		if err != nil || n == 1 {
			return err
		}
		var row struct {
			Target string `db:"target"`
			Status int    `db:"status"`
			Body   []byte `db:"body"`
		}
		if err := c.get(&row, `SELECT target, status, body FROM idempotency WHERE credential = ? AND key = ?`, who.Credential, key); err != nil {
			return err
		}
		switch {
		case row.Target != target:
			return relay.Errorf(relay.CodeValidationFailed, "this Idempotency-Key was used for another request")
		case row.Status == 0:
			return relay.Errorf(relay.CodeConflict, "the first request with this Idempotency-Key is still running")
		}
		status, body = row.Status, row.Body
		return nil
	})
	return status, body, err
}

// EndIdempotent keeps the answer of a call; status 0 forgets the key, so that the
// call may be made again.
func (s *Store) EndIdempotent(ctx context.Context, who relay.Actor, key string, status int, body []byte) error {
	return s.update(ctx, "end idempotent call", func(c *change) error {
		var err error
		if status == 0 {
			_, err = c.exec(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND status = 0`, who.Credential, plain(key))
		} else {
			_, err = c.exec(`UPDATE idempotency SET status = ?, body = ? WHERE credential = ? AND key = ?`, status, present(body), who.Credential, plain(key))
		}
		return err
	})
}
