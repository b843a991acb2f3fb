package events

import (
	"context"

	"relay"
	"relay/store/db"
)

// payloadRowOverhead is the number of bytes that a row of payloads counts in addition to its content.
// PayloadBytes is the SQL expression for the bytes of a row with this overhead.
const (
	payloadRowOverhead = 512
	PayloadBytes       = `(512 + stored + COALESCE(LENGTH(head), 0) + COALESCE(LENGTH(lines), 0) + COALESCE(LENGTH(extra), 0) + COALESCE(LENGTH(interim), 0))`
)

// StoredSize returns the number of bytes that a message counts for in the storage of its alias.
func StoredSize(m *relay.Message, extra ...[]byte) int64 {
	n := payloadRowOverhead + int64(len(m.Head)+len(m.Lines))
	if m.Body.Parts > 0 {
		n += m.Body.Stored
	} else {
		n += int64(len(m.Body.Data))
	}
	for _, b := range extra {
		n += int64(len(b))
	}
	return n
}

// AttemptStoredSize returns the number of bytes that an attempt counts for in the storage of its alias.
func AttemptStoredSize(a *relay.Attempt) int64 {
	if !HasPayload(a) {
		return 0
	}
	return StoredSize(&a.Response, a.SentHead, packInterim(a.Interim))
}

// Usage counts, for the operator, the events and bytes of each alias that has events. It reads a row
// of every message, however long that takes.
func (s *Store) Usage(ctx context.Context, who relay.Actor) (map[int64]relay.Usage, error) {
	if who.Kind != relay.ActorSystem {
		return nil, relay.Errorf(relay.CodeForbidden, "only the operator can see what all accounts store; run relayd user list --usage")
	}
	handle := s.db.Slow
	if !s.db.Dialect.SeveralNodes() {
		handle = s.db.Read // the running server needs the writing connection
	}
	type row struct {
		relay.Usage
		alias int64
	}
	rows, err := db.RowsOf(s.db.Session(ctx, handle), func(r *row) []any { return []any{&r.alias, &r.Events, &r.Bytes} },
		`SELECT e.alias_id, SUM(CASE WHEN p.n = 0 THEN 1 ELSE 0 END), CAST(SUM(`+PayloadBytes+`) AS BIGINT)
			FROM payloads p JOIN events e ON e.id = p.event_id GROUP BY e.alias_id`)
	out := make(map[int64]relay.Usage, len(rows))
	for _, r := range rows {
		out[r.alias] = r.Usage
	}
	return out, s.db.Fault("count what is stored", err)
}
