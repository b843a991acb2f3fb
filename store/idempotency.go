package store

import (
	"context"
	"sync"
	"time"

	"relay"
)

const (
	idempotencyLife = 24 * time.Hour // how long an answer is kept
	mostLateEnds    = 1000           // answers that wait for the database
)

// lateEnds are ends of calls with an Idempotency-Key that could not be written: without
// them the key would say until the next start that its call still runs.
type lateEnds struct {
	mu   sync.Mutex
	ends map[callKey]callEnd

	writeMu sync.Mutex // one at a time: an end must not meet the next call of its key
}

type callKey struct{ credential, key string }

// callEnd is the answer of a call; status 0 = none, the call may be made again.
type callEnd struct {
	status int
	body   []byte
	begun  int64 // not 0: only of the call that was begun then, whose commit was not answered
}

// passes reports whether err is temporary.
func passes(err error) bool {
	if err == nil {
		return false
	}
	code := relay.AsError(err).Code
	return code == relay.CodeStoreUnavailable || code == relay.CodeStorageFull
}

// note remembers an end that failed for err, unless it would fail again.
func (l *lateEnds) note(k callKey, e callEnd, err error) {
	if !passes(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends == nil {
		l.ends = map[callKey]callEnd{}
	}
	if len(l.ends) < mostLateEnds {
		l.ends[k] = e
	}
}

func (l *lateEnds) of(k callKey) (e callEnd, some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, some = l.ends[k]
	return e, some
}

func (l *lateEnds) drop(k callKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ends, k)
}

func (l *lateEnds) keys() (list []callKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.ends {
		list = append(list, k)
	}
	return list
}

// endLate writes the end of a call if it waits.
func (s *Store) endLate(ctx context.Context, k callKey) error {
	l := &s.lateEnds
	if _, some := l.of(k); !some {
		return nil
	}
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	e, some := l.of(k) // it may have been written meanwhile
	if !some {
		return nil
	}
	err := s.endCall(context.WithoutCancel(ctx), k, e)
	if !passes(err) {
		l.drop(k)
	}
	return err
}

// endAllLate writes what waits; best effort.
func (s *Store) endAllLate(ctx context.Context) {
	for _, k := range s.lateEnds.keys() {
		if ctx.Err() != nil || s.endLate(ctx, k) != nil {
			return // tried again in a second
		}
	}
}

// BeginIdempotent remembers an Idempotency-Key; see api.Accounts. A call that a dead node
// began and never ended counts as never made.
func (s *Store) BeginIdempotent(ctx context.Context, who relay.Actor, key, target string) (status int, body []byte, err error) {
	k, begun := callKey{who.Credential, storableText(key)}, int64(0)
	if err := s.endLate(ctx, k); err != nil {
		return 0, nil, err
	}
	err = s.update(ctx, "begin idempotent call", func(c *writeTx) error {
		status, body, begun = 0, nil, 0
		now := s.now()
		target := storableText(target)
		if _, err := c.exec(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND (created_at < ?
			OR status = 0 AND NOT EXISTS (SELECT 1 FROM nodes WHERE id = idempotency.node AND state <> 'dead'))`,
			k.credential, k.key, micros(now.Add(-idempotencyLife))); err != nil {
			return err
		}
		n, err := c.exec(`INSERT INTO idempotency (credential, key, target, node, created_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			k.credential, k.key, target, s.NodeID(), micros(now))
		if err != nil {
			return err
		}
		if n == 1 {
			begun = micros(now)
			return nil
		}
		status, body, err = c.earlier(k, target)
		return err
	})
	if begun != 0 {
		s.lateEnds.note(k, callEnd{begun: begun}, err)
	}
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

// EndIdempotent keeps the answer of a call; status 0 forgets the key, so that the
// call may be made again. While the database is away the answer waits for it.
func (s *Store) EndIdempotent(ctx context.Context, who relay.Actor, key string, status int, body []byte) error {
	k, e := callKey{who.Credential, storableText(key)}, callEnd{status: status, body: body}
	err := s.endCall(ctx, k, e)
	s.lateEnds.note(k, e, err)
	return err
}

func (s *Store) endCall(ctx context.Context, k callKey, e callEnd) error {
	return s.update(ctx, "end idempotent call", func(c *writeTx) (err error) {
		switch {
		case e.begun != 0:
			// Its commit may still be under way: an equal row waits for that.
			if _, err = c.exec(`INSERT INTO idempotency (credential, key, target, node, created_at) VALUES (?, ?, '', ?, ?) ON CONFLICT DO NOTHING`,
				k.credential, k.key, s.NodeID(), e.begun); err == nil {
				_, err = c.exec(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND status = 0 AND created_at = ?`, k.credential, k.key, e.begun)
			}
		case e.status == 0:
			_, err = c.exec(`DELETE FROM idempotency WHERE credential = ? AND key = ? AND status = 0`, k.credential, k.key)
		default:
			_, err = c.exec(`UPDATE idempotency SET status = ?, body = ? WHERE credential = ? AND key = ?`, e.status, nonNil(e.body), k.credential, k.key)
		}
		return err
	})
}
