package store

import (
	"bytes"
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"relay"
)

const eventColumns = `id, alias_id, received_at, asked_at, remote, tls, method, target, http_minor, host,
	provider_name, provider_type, provider_delivery, signed_at, tolerance_us,
	state, error_code, error_message, status, latency_us, attempts, ended_n, blocker, req_size`

// listColumns are those of a list row, with the alias' name beside.
const listColumns = `e.id, e.alias_id, e.received_at, e.asked_at, e.remote, e.tls, e.method, e.target, e.http_minor, e.host,
	e.provider_name, e.provider_type, e.provider_delivery, e.signed_at, e.tolerance_us,
	e.state, e.error_code, e.error_message, e.status, e.latency_us, e.attempts, e.blocker, e.req_size, al.name AS alias`

// markedColumns are listColumns with what a person noted about the event. They need marksJoin.
const (
	markedColumns = listColumns + `, COALESCE(em.pinned, 0) AS pinned, COALESCE(em.label, '') AS label, COALESCE(em.note, '') AS note`
	marksJoin     = ` LEFT JOIN event_marks em ON em.event_id = e.id`
)

type eventRow struct {
	ID               relay.ID `db:"id"`
	AliasID          int64    `db:"alias_id"`
	Alias            string   `db:"alias"`
	ReceivedAt       int64    `db:"received_at"`
	AskedAt          int64    `db:"asked_at"`
	Remote           string   `db:"remote"`
	TLS              int      `db:"tls"`
	Method           string   `db:"method"`
	Target           []byte   `db:"target"`
	HTTPMinor        int      `db:"http_minor"`
	Host             string   `db:"host"`
	ProviderName     string   `db:"provider_name"`
	ProviderType     string   `db:"provider_type"`
	ProviderDelivery string   `db:"provider_delivery"`
	SignedAt         int64    `db:"signed_at"`
	Tolerance        int64    `db:"tolerance_us"`
	State            int      `db:"state"`
	ErrorCode        string   `db:"error_code"`
	ErrorMessage     string   `db:"error_message"`
	Status           int      `db:"status"`
	Latency          *int64   `db:"latency_us"`
	Attempts         int      `db:"attempts"`
	EndedN           int      `db:"ended_n"`
	Blocker          string   `db:"blocker"`
	Size             int64    `db:"req_size"`
	Pinned           int      `db:"pinned"`
	Label            string   `db:"label"`
	Note             string   `db:"note"`
}

func (r *eventRow) event() relay.Event {
	e := relay.Event{
		ID: r.ID, AliasID: r.AliasID, Alias: r.Alias, ReceivedAt: fromMicros(r.ReceivedAt), LastReceivedAt: fromMicros(r.AskedAt),
		TLS: r.TLS != 0, Method: r.Method, Target: r.Target, HTTPMinor: r.HTTPMinor, Host: r.Host,
		Provider: relay.Provider{
			Name: r.ProviderName, EventType: r.ProviderType, DeliveryID: r.ProviderDelivery,
			SignedAt: fromMicros(r.SignedAt), Tolerance: time.Duration(r.Tolerance) * time.Microsecond,
		},
		State: states[r.State&7], Error: faultOf(r.ErrorCode, r.ErrorMessage), Status: r.Status, AttemptCount: r.Attempts,
		Blocker: r.Blocker, Mark: relay.Mark{Pinned: r.Pinned != 0, Label: r.Label, Note: r.Note},
	}
	e.Remote, _ = netip.ParseAddrPort(r.Remote)
	if r.Latency != nil {
		e.Latency, e.HasLatency = time.Duration(*r.Latency)*time.Microsecond, true
	}
	e.Request.Body.Size = r.Size
	return e
}

// newEventRow is the row of a new event, whose attempt is nil for none.
func newEventRow(e *relay.Event, a *relay.Attempt, state int) eventRow {
	p, fault := e.Provider, e.Error
	r := eventRow{
		ID: e.ID, AliasID: e.AliasID, Alias: e.Alias, ReceivedAt: micros(e.ReceivedAt), AskedAt: micros(e.ReceivedAt), Remote: e.Remote.String(),
		TLS: boolToInt(e.TLS), Method: storableText(e.Method), Target: nonNil(e.Target), HTTPMinor: e.HTTPMinor, Host: storableText(e.Host),
		ProviderName: storableText(p.Name), ProviderType: storableText(p.EventType), ProviderDelivery: storableText(p.DeliveryID),
		SignedAt: micros(p.SignedAt), Tolerance: p.Tolerance.Microseconds(), State: state, Blocker: blockerOf(e, state), Size: e.Request.Body.Size,
	}
	if a != nil {
		r.AskedAt, r.Attempts = micros(a.ReceivedAt), a.N
		if a.State != relay.StateQueued && a.State != relay.StateDelivering {
			r.EndedN, r.Status, r.Latency = a.N, a.Status, latencyMicros(a)
		}
		fault = cmp.Or(fault, a.Error)
	}
	r.ErrorCode, r.ErrorMessage = faultText(fault)
	return r
}

// values are those of eventColumns.
func (r *eventRow) values() []any {
	return []any{
		r.ID, r.AliasID, r.ReceivedAt, r.AskedAt, r.Remote, r.TLS, r.Method, r.Target, r.HTTPMinor, r.Host,
		r.ProviderName, r.ProviderType, r.ProviderDelivery, r.SignedAt, r.Tolerance,
		r.State, r.ErrorCode, r.ErrorMessage, r.Status, r.Latency, r.Attempts, r.EndedN, r.Blocker, r.Size,
	}
}

func latencyMicros(a *relay.Attempt) *int64 {
	if !a.HasTiming {
		return nil
	}
	us := max(a.Timing.Latency().Microseconds(), 0)
	return &us
}

// blockerOf says why a new event may not be replayed, "" when it may.
func blockerOf(e *relay.Event, state int) string {
	switch {
	case state == rejected:
		return relay.BlockedRejected
	case state == incomplete:
		return relay.BlockedIncomplete
	case e.Blocker != "":
		return storableText(e.Blocker)
	}
	return bodyBlocker(e.Request.Body.State)
}

func bodyBlocker(state string) string {
	if state == relay.BodyComplete || state == "" {
		return ""
	}
	return relay.BlockedBody
}

// lockSlice is how many events one statement of lockEvents locks.
const lockSlice = 500

// lockEvents locks events of Postgres in the order of their ids. Every transaction locks
// what it changes in one order, so that no two of them wait for each other: events by id,
// then the attempts and the bytes of events that it has locked. SQLite has one writer.
func (c *writeTx) lockEvents(ids []relay.ID) error {
	if c.d.forUpdate == "" {
		return nil
	}
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b relay.ID) int { return bytes.Compare(a[:], b[:]) })
	for some := range slices.Chunk(slices.Compact(ids), lockSlice) {
		var locked []int
		if err := c.allIn(&locked, `SELECT 1 FROM events WHERE id IN (?) ORDER BY id`+c.d.forUpdate, some); err != nil {
			return err
		}
	}
	return nil
}

// endEvent repeats on events what became of one attempt each. A row is the id, the number of the
// attempt, its state (or rejected or incomplete), error code and message, status, latency and the
// blocker. An event that was rejected or incomplete stays so; its state is that of its last
// attempt, its status that of the last one that ended.
var endEvent = newStatement(`uuid bigint bigint text text bigint bigint text`,
	`WITH v (vid, vn, vstate, vcode, vmessage, vstatus, vlatency, vblocker) AS (%s)
		UPDATE events SET
			state = CASE WHEN state >= 6 THEN state WHEN v.vstate >= 6 OR attempts = v.vn THEN v.vstate ELSE state END,
			error_code = CASE WHEN attempts = v.vn AND NOT (state >= 6 AND v.vcode = '') THEN v.vcode ELSE error_code END,
			error_message = CASE WHEN attempts = v.vn AND NOT (state >= 6 AND v.vcode = '') THEN v.vmessage ELSE error_message END,
			status = CASE WHEN ended_n <= v.vn THEN v.vstatus ELSE status END,
			latency_us = CASE WHEN ended_n <= v.vn THEN v.vlatency ELSE latency_us END,
			ended_n = CASE WHEN ended_n < v.vn THEN v.vn ELSE ended_n END,
			blocker = CASE WHEN blocker <> '' THEN blocker WHEN v.vstate = 6 THEN 'rejected' WHEN v.vstate = 7 THEN 'incomplete' ELSE v.vblocker END
		FROM v WHERE id = v.vid {id}`)

// Event reads one event whole that the actor may see, with all its attempts; of
// each body at most maxBody bytes, and where that is over relay.InlineBody, of all
// together at most 16 MiB: what does not fit comes without its bytes, those of the
// request, the first attempt and the last ones before others.
func (s *Store) Event(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error) {
	var e relay.Event
	err := s.view(ctx, "read event", func(q session) error {
		var err error
		e, err = q.event(who, id)
		if err != nil {
			return err
		}
		return q.fill(&e, maxBody)
	})
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// event reads the row of an event that the actor may see.
func (q session) event(who relay.Actor, id relay.ID) (relay.Event, error) {
	may, args := q.eventAccess(who)
	var row eventRow
	err := q.get(&row, `SELECT `+markedColumns+` FROM events e JOIN aliases al ON al.id = e.alias_id`+marksJoin+`
		WHERE e.id = ? AND `+may, append([]any{id}, args...)...)
	if err != nil {
		return relay.Event{}, err
	}
	return row.event(), nil
}

// ownEvent reads the row of an event of an alias that the actor owns: members may
// see and replay, no more.
func (q session) ownEvent(who relay.Actor, id relay.ID) (relay.Event, error) {
	e, err := q.event(who, id)
	if err != nil || who.Kind == relay.ActorSystem {
		return e, err
	}
	own, err := q.exists(`SELECT 1 FROM aliases WHERE id = ? AND owner_id = ?`, e.AliasID, who.Account)
	if err == nil && !own {
		err = relay.Errorf(relay.CodeForbidden, "only the owner of %s may do this", e.Alias)
	}
	return e, err
}

// fill adds request and attempts to the row of an event.
func (q session) fill(e *relay.Event, maxBody int) error {
	var attempts []attemptRow
	if err := q.all(&attempts, attemptQuery+`event_id = ? ORDER BY n`, e.ID); err != nil {
		return err
	}
	var list []payloadRow
	if err := q.all(&list, `SELECT n, head, lines, framing, parts, stored, size, sha256, state, extra, interim
		FROM payloads WHERE event_id = ? ORDER BY n`, e.ID); err != nil {
		return err
	}
	payloads, byN := make([]*payloadRow, len(list)), make(map[int]*payloadRow, len(list))
	for i := range list {
		payloads[i], byN[list[i].N] = &list[i], &list[i]
	}
	if err := q.fillBodies(e.ID, payloads, maxBody, budgetOf(maxBody)); err != nil {
		return err
	}
	if p := byN[0]; p != nil {
		e.Request, e.ForwardedLines = p.message(), p.Extra
	}
	e.Attempts = make([]relay.Attempt, len(attempts))
	for i := range attempts {
		a := &e.Attempts[i]
		*a = attempts[i].attempt()
		if p := byN[a.N]; p != nil {
			fillAttempt(a, p)
		}
	}
	var waiting []relay.AttemptRef
	for _, a := range attempts {
		if a.State == queued {
			waiting = append(waiting, a.ref())
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	positions, err := q.queuePositions(e.AliasID, waiting)
	for i := range e.Attempts {
		e.Attempts[i].Position = positions[attempts[i].ref()]
	}
	return err
}

// Summaries reads list rows for the feed, in the order of ids; those that are gone
// are left out.
func (s *Store) Summaries(ctx context.Context, ids []relay.ID) ([]relay.Event, error) {
	var out []relay.Event
	for some := range slices.Chunk(ids, 200) {
		var rows []eventRow
		if err := s.view(ctx, "read summaries", func(q session) error {
			return q.allIn(&rows, `SELECT `+markedColumns+` FROM events e JOIN aliases al ON al.id = e.alias_id`+marksJoin+` WHERE e.id IN (?)`, some)
		}); err != nil {
			return nil, err
		}
		byID := map[relay.ID]*eventRow{}
		for i := range rows {
			byID[rows[i].ID] = &rows[i]
		}
		for _, id := range some {
			if row := byID[id]; row != nil {
				out = append(out, row.event())
			}
		}
	}
	return out, nil
}
