package events

import (
	"slices"

	"relay"
	"relay/store/db"
)

// ClaimedColumns are the beginning of a query that reads claims; see ClaimFields.
var ClaimedColumns = `SELECT ` + listColumns + `, p.head, p.lines, p.framing, p.body, p.parts, p.stored, p.size, p.sha256, p.state,
		p.extra, a.n, a.kind, a.state, a.received_at, a.started_at, a.actor, a.released`

// ClaimedSQL is the query for an attempt that is claimed. Its parameters are the id of the event, the same
// id again, and the number of the attempt.
var ClaimedSQL = ClaimedColumns + ` FROM events e JOIN aliases al ON al.id = e.alias_id JOIN payloads p ON p.event_id = e.id AND p.n = 0
	JOIN attempts a ON a.event_id = e.id WHERE e.id = ? AND a.event_id = ? AND a.n = ?`

// ClaimFields returns the destinations of ClaimedColumns: an attempt to deliver, and its event with the
// request, without the parts of a large body. The claiming statement of Postgres returns the event in its
// state before the claim. If the claimed attempt is the last one, its state therefore replaces that state,
// unless the event is rejected or incomplete.
func ClaimFields(c *relay.Claim) []any {
	c.Event = &relay.Event{Attempts: make([]relay.Attempt, 1)}
	e, a := c.Event, &c.Event.Attempts[0]
	state := db.Code(&a.State, States)
	return slices.Concat(eventFields(e), messageFields(&e.Request), []any{
		&e.ForwardedLines, &a.N, db.Code(&a.Kind, kinds), db.Column(func(stored any) {
			state(stored)
			if c.N = a.N; e.AttemptCount == a.N && e.State != relay.StateRejected && e.State != relay.StateIncomplete {
				e.State = a.State
			}
		}), (*db.Time)(&a.ReceivedAt), (*db.Time)(&a.StartedAt), &a.Actor, &a.Released,
	})
}
