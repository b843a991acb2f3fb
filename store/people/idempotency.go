package people

import (
	"context"
	"time"

	"relay"
	"relay/store/db"
)

// IdempotencyLife is the time for which the response of a call is kept.
const IdempotencyLife = 24 * time.Hour

// callEnd is the response of a call; status 0 = none, the call may be made again.
type callEnd struct {
	node            string // id of the node that writes the row
	credential, key string
	status          int
	body            []byte
	begun           int64 // if the commit of BeginIdempotent got no answer: the time at which the call began; otherwise 0
}

// endLater keeps the end of a call that could not be stored because of err, and stores it later unless the
// database refuses it for good. Without the end, the key appears to be in use until the next start.
func (s *Store) endLater(e callEnd, err error) {
	if temporary(err) {
		s.late.put(e.late(), func(lateWrite) lateWrite { return e })
	}
}

func (e callEnd) late() lateKey { return lateKey{&lateEnds, e.credential + " " + e.key} }

// BeginIdempotent stores an Idempotency-Key; see api.Accounts. A call that a dead node began and never
// ended counts as never made.
func (s *Store) BeginIdempotent(ctx context.Context, who relay.Actor, key, target string) (status int, body []byte, err error) {
	call := callEnd{credential: who.Credential, key: db.StorableText(key)}
	// The end of an earlier call with this key may wait to be written. It must not apply to the new call, so
	// it is written before the new call begins.
	if err := s.writeLate(ctx, []lateKey{call.late()}); temporary(err) {
		return 0, nil, err
	}
	err = s.db.Update(ctx, "begin idempotent call", func(c *db.Tx) error {
		// The node gets another id when it rejoins, and a call under the former id counts as never made. So
		// the call gets the present id.
		call.node, call.begun, status, body = s.opt.NodeID(), 0, 0, nil
		now := s.db.Now()
		target := db.StorableText(target)
		c.Do(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND (created_at < ?
			OR status = 0 AND NOT EXISTS (SELECT 1 FROM nodes WHERE id = idempotency.node AND state <> 'dead'))`,
			call.credential, call.key, s.over(IdempotencyLife))
		n, err := c.Exec(`INSERT INTO idempotency (credential, key, target, node, created_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			call.credential, call.key, target, call.node, db.Micros(now))
		if err != nil {
			return err
		}
		if n == 1 {
			call.begun = db.Micros(now)
			return nil
		}
		status, body, err = earlierAnswer(c, call.credential, call.key, target)
		return err
	})
	if call.begun != 0 {
		s.endLater(call, err)
	}
	return status, body, err
}

// earlierAnswer returns the response of an earlier call with the key and the same target. The error is
// validation-failed if the earlier call had another target, and conflict while it is in progress.
func earlierAnswer(c *db.Tx, credential, key, target string) (status int, body []byte, err error) {
	var before string
	query := `SELECT target, status, body FROM idempotency WHERE credential = ? AND key = ?`
	if err := c.Row(query, credential, key).Scan(&before, &status, &body); err != nil {
		return 0, nil, err
	}
	switch {
	case before != target:
		return 0, nil, relay.Errorf(relay.CodeValidationFailed, "this Idempotency-Key was used for another request")
	case status == 0:
		return 0, nil, relay.Errorf(relay.CodeConflict, "the first request with this Idempotency-Key is still in progress; retry in a moment")
	}
	return status, body, nil
}

// EndIdempotent stores the response of a call; status 0 deletes the key, so that the call may be made again.
// While the database is down the response is kept in memory.
func (s *Store) EndIdempotent(ctx context.Context, who relay.Actor, key string, status int, body []byte) error {
	e := callEnd{node: s.opt.NodeID(), credential: who.Credential, key: db.StorableText(key), status: status, body: body}
	err := s.db.Update(ctx, "end idempotent call", e.write)
	s.endLater(e, err)
	return err
}

func (e callEnd) write(c *db.Tx) error {
	switch {
	case e.begun != 0:
		// The commit of BeginIdempotent may still be in progress. This insert of a row with the same key
		// waits until that commit has ended.
		c.Do(`INSERT INTO idempotency (credential, key, target, node, created_at) VALUES (?, ?, '', ?, ?) ON CONFLICT DO NOTHING`,
			e.credential, e.key, e.node, e.begun)
		c.Do(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND status = 0 AND created_at = ?`, e.credential, e.key, e.begun)
	case e.status == 0:
		c.Do(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND status = 0`, e.credential, e.key)
	default:
		c.Do(`UPDATE idempotency SET status = ?, body = ? WHERE credential = ? AND key = ?`, e.status, db.NonNil(e.body), e.credential, e.key)
	}
	return c.Err
}
