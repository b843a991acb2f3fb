package events

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/record"
	"relay/store/db"
	"relay/store/people"
)

// markedColumns are listColumns and the marks that users set on the event. They need marksJoin.
var markedColumns = listColumns + `, COALESCE(em.pinned, 0) AS pinned, COALESCE(em.label, '') AS label, COALESCE(em.note, '') AS note`

const marksJoin = ` LEFT JOIN event_marks em ON em.event_id = e.id`

// markedFields returns the destinations of markedColumns.
func markedFields(e *relay.Event) []any {
	return append(eventFields(e), &e.Mark.Pinned, &e.Mark.Label, &e.Mark.Note)
}

// SetOutcome copies the fields that the row of an event repeats from its last attempt, which has ended. It
// leaves out state, error and blocker, because the event may have its own.
func SetOutcome(e *relay.Event, a *relay.Attempt) {
	e.Status, e.HasLatency, e.HostRefusedBy = a.Status, a.HasTiming, Refusal(e, a)
	e.Latency = max(a.Timing.Latency(), 0).Truncate(time.Microsecond)
}

// LatencyMicros returns the stored form of the latency of an attempt; nil if it has none.
func LatencyMicros(a *relay.Attempt) any {
	if !a.HasTiming {
		return nil
	}
	return max(a.Timing.Latency().Microseconds(), 0)
}

// BodyBlocker returns the reason why an event with a body in the given state cannot be replayed; "" if it can.
func BodyBlocker(state string) string {
	if state == relay.BodyComplete || state == "" {
		return ""
	}
	return relay.BlockedBody
}

// lockSlice is the number of events that one statement of LockEvents locks.
const lockSlice = 500

// LockEvents locks events of Postgres in the order of their ids. Every transaction locks the rows that it
// changes in the same order: events by id, then the attempts and the bytes of these events. So no two
// transactions wait for each other. SQLite needs no locks, because it has one writer.
func LockEvents(c *db.Tx, ids []relay.ID) error {
	if c.Dialect.ForUpdate() == "" {
		return nil
	}
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b relay.ID) int { return bytes.Compare(a[:], b[:]) })
	for some := range slices.Chunk(slices.Compact(ids), lockSlice) {
		var locked []int
		if err := c.AllIn(&locked, `SELECT 1 FROM events WHERE id IN (?) ORDER BY id`+c.Dialect.ForUpdate(), some); err != nil {
			return err
		}
	}
	return nil
}

// EndEvent copies the outcome of one attempt to each of several events. Its parameters for each event are the
// id, the number of the attempt, the state (that of the attempt, or rejected or incomplete), error code and
// message, status, latency and blocker. A rejected or incomplete event keeps that state. Every other event gets
// the state of its last attempt, and the status of the last attempt that ended.
var EndEvent = db.NewStatement(`uuid bigint bigint text text bigint bigint text`,
	`WITH v (vid, vn, vstate, vcode, vmessage, vstatus, vlatency, vblocker) AS (%s)
		UPDATE events SET
			state = CASE WHEN state IN (6, 7) THEN state WHEN v.vstate IN (6, 7) OR attempts = v.vn THEN v.vstate ELSE state END,
			error_code = CASE WHEN attempts = v.vn AND NOT (state IN (6, 7) AND v.vcode = '') THEN v.vcode ELSE error_code END,
			error_message = CASE WHEN attempts = v.vn AND NOT (state IN (6, 7) AND v.vcode = '') THEN v.vmessage ELSE error_message END,
			status = CASE WHEN ended_n <= v.vn THEN v.vstatus ELSE status END,
			latency_us = CASE WHEN ended_n <= v.vn THEN v.vlatency ELSE latency_us END,
			host_refused_by = CASE WHEN ended_n <= v.vn THEN '' ELSE host_refused_by END,
			ended_n = CASE WHEN ended_n < v.vn THEN v.vn ELSE ended_n END,
			blocker = CASE WHEN blocker <> '' THEN blocker WHEN v.vstate = 6 THEN 'rejected' WHEN v.vstate = 7 THEN 'incomplete' ELSE v.vblocker END
		FROM v WHERE id = v.vid {id}`)

// SetHostRefusedBy stores the name of the framework that refused the Host header of an event. Its parameters
// for each event are the id, the number of the attempt and the name; an event of which a later attempt has
// ended stays unchanged. The statement runs after EndEvent, which clears the name, and after the insert of an
// event with its end. Few responses are refusals, so EndEvent has no parameter for the name.
var SetHostRefusedBy = db.NewStatement(`uuid bigint text`,
	`WITH v (vid, vn, vname) AS (%s) UPDATE events SET host_refused_by = v.vname FROM v WHERE id = v.vid AND ended_n = v.vn {id}`)

// SetRedirected marks events whose local server redirected the request to the same address with https. Its
// parameters for each event are the id, the number of the attempt, and the host and target of the redirect.
// An event with another host or target stays unchanged.
var SetRedirected = db.NewStatement(`uuid bigint text bytea`,
	`WITH v (vid, vn, vhost, vtarget) AS (%s) UPDATE events SET host_refused_by = '`+record.RedirectedToSelf+`' FROM v
		WHERE id = v.vid AND ended_n = v.vn AND target = v.vtarget AND (LOWER(host) = v.vhost OR LOWER(host) LIKE v.vhost || ':%') {id}`)

// SetHandshake stores for each event the name of the challenge that the relay has answered. Few events have a
// challenge, so EndEvent has no parameter for it.
var SetHandshake = db.NewStatement(`uuid text`,
	`WITH v (vid, vname) AS (%s) UPDATE events SET handshake = v.vname, missed_handshake = '' FROM v WHERE id = v.vid {id}`)

// RefusedBy returns the name of the framework whose response to an attempt refuses the request because of its
// host name or scheme; "" = none. A response that is stored in parts is too large to be such a refusal.
func RefusedBy(a *relay.Attempt) string {
	return record.RefusedBy(a.Status, a.Response.Head, a.Response.Body.Data)
}

// Refusal returns the HostRefusedBy of an event after an attempt. This is the result of RefusedBy or, for a
// redirect to the event's own address, the word that SetRedirected stores.
func Refusal(e *relay.Event, a *relay.Attempt) string {
	if by := RefusedBy(a); by != "" {
		return by
	}
	host, target, ok := record.RedirectTo(a.Status, a.Response.Head)
	own := strings.ToLower(e.Host)
	if ok && string(target) == string(e.Target) && (own == host || strings.HasPrefix(own, host+":")) {
		return record.RedirectedToSelf
	}
	return ""
}

// SetCallerGone stores that the callers of attempts did not get the whole response. Few callers leave early,
// and often this is noticed only after the end of the attempt was stored. The statement that ends attempts
// therefore has no parameter for it.
var SetCallerGone = db.NewStatement(`uuid bigint`,
	`WITH v (vid, vn) AS (%s) UPDATE attempts SET caller_gone = 1 FROM v WHERE event_id = v.vid AND n = v.vn {event_id}`)

// SentText returns the stored form of a Sent; "" for nil.
func SentText(s *relay.Sent) string {
	if s == nil {
		return ""
	}
	text, _ := json.Marshal(s) // never fails, because the fields are texts
	return string(text)
}

// sentColumn returns the destination of a column with a Sent; an empty text is nil.
func sentColumn(to **relay.Sent) db.Column {
	return func(stored any) {
		var text []byte
		switch v := stored.(type) {
		case string:
			text = []byte(v)
		case []byte:
			text = v
		}
		if *to = nil; len(text) > 0 {
			*to = new(relay.Sent)
			_ = json.Unmarshal(text, *to) // if a later relayd wrote the text, the result at least shows that the event was sent
		}
	}
}

// Event reads one event that the actor may see, with its request, its first attempt and the newest
// relay.ShownAttempts. It reads at most maxBody bytes of each body, and at most messageBudget bytes of
// heads and bodies in total. Messages beyond that come without their bytes; the request, the first
// attempt and the newest ones have priority.
func (s *Store) Event(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error) {
	release, err := s.heavyReads.acquire(ctx, who)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.readEvent(ctx, who, id, maxBody, true)
}

// Request is Event without attempts.
func (s *Store) Request(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error) {
	if maxBody > 0 {
		release, err := s.heavyReads.acquire(ctx, who)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	return s.readEvent(ctx, who, id, maxBody, false)
}

// readEvent reads an event with its request and, if page is true, with the attempts that pageOf chooses.
func (s *Store) readEvent(ctx context.Context, who relay.Actor, id relay.ID, maxBody int, page bool) (*relay.Event, error) {
	var e relay.Event
	var list []*payload
	var ended int        // number of the last attempt that ended
	var firstEnd db.Time // when the first attempt ended
	err := s.db.Snapshot(ctx, "read event", func(q db.Query) (err error) {
		if e, err = FindEvent(q, who, id); err != nil {
			return err
		}
		if err := q.Row(`SELECT ended_n, COALESCE((SELECT ended_at FROM attempts WHERE event_id = ? AND n = 1), 0) FROM events WHERE id = ?`, id, id).
			Scan(&ended, &firstEnd); err != nil {
			return err
		}
		var numbers []int
		if page {
			numbers = pageOf(e.AttemptCount, ended)
		}
		if e.Attempts, err = readAttempts(q, &e, numbers); err != nil {
			return err
		}
		list, err = readMessages(q, id, append([]int{0}, numbers...), maxBody)
		return err
	})
	if err == nil {
		err = s.db.View(ctx, "read event", func(q db.Query) error { return readBodies(q, id, list) })
	}
	if err != nil {
		return nil, err
	}
	s.fillEvent(&e, list, ended, time.Time(firstEnd))
	return &e, nil
}

// pageOf returns the numbers of the attempts that are read with an event, the most important ones first: the
// first attempt, the newest ones, and the last one that ended.
func pageOf(count, ended int) (numbers []int) {
	if count > 0 {
		numbers = append(numbers, 1)
	}
	for n := count; n > 1 && n > count-relay.ShownAttempts; n-- {
		numbers = append(numbers, n)
	}
	if ended > 0 && !slices.Contains(numbers, ended) {
		numbers = append(numbers, ended)
	}
	return numbers
}

// FindEvent reads the row of an event that the actor may see.
func FindEvent(q db.Query, who relay.Actor, id relay.ID) (relay.Event, error) {
	may, args := people.AliasAccess(who)
	if who.Kind == relay.ActorShare {
		may = `e.id = ? AND EXISTS (SELECT 1 FROM shares sh WHERE sh.id = ? AND sh.event_id = e.id AND (sh.expires_at = 0 OR sh.expires_at > ?))`
		args = []any{who.Shared, who.Credential, db.Micros(q.Now())}
	}
	return db.RowOf(q, markedFields, `SELECT `+markedColumns+` FROM events e JOIN aliases al ON al.id = e.alias_id`+marksJoin+`
		WHERE e.id = ? AND `+may, append([]any{id}, args...)...)
}

// ownEvent reads the row of an event of an alias that the actor owns. Members may only see and replay events.
func ownEvent(q db.Query, who relay.Actor, id relay.ID) (relay.Event, error) {
	e, err := FindEvent(q, who, id)
	if err != nil || who.Kind == relay.ActorSystem {
		return e, err
	}
	// The alias may have been removed since FindEvent: then the event is not found.
	owner, err := ownerOf(q, e.AliasID)
	if err == nil && owner != who.Account {
		err = relay.Errorf(relay.CodeForbidden, "only the owner of %s may do this", e.Alias)
	}
	return e, err
}

// OwnEventForUpdate is ownEvent for an event that the transaction changes. It also locks the alias, so
// that the actor stays its owner until the transaction ends.
func OwnEventForUpdate(c *db.Tx, who relay.Actor, id relay.ID) (relay.Event, error) {
	e, err := ownEvent(c.Query, who, id)
	if err != nil {
		return e, err
	}
	if err := people.LockAlias(c, e.AliasID); err != nil {
		return e, err
	}
	if err := LockEvents(c, []relay.ID{id}); err != nil { // replays, retention and other changes of the event wait for this lock
		return e, err
	}
	return ownEvent(c.Query, who, id)
}

// receivingTime is the time after the end of the first attempt for which a request is shown as being
// received, if the end of the request is not stored.
const receivingTime = time.Minute

// fillEvent adds the messages in list to an event. ended is the number of the last attempt that ended;
// firstEnd is the end of the first attempt.
func (s *Store) fillEvent(e *relay.Event, list []*payload, ended int, firstEnd time.Time) {
	fillAttempts(e.Attempts, list)
	if len(list) > 0 && list[0].n == 0 {
		e.Request, e.ForwardedLines = list[0].Message, list[0].extra
	}
	// The end of a request is stored soon after its response, unless its node was killed or could not store
	// it. After receivingTime, the request is therefore shown as aborted.
	if b := &e.Request.Body; b.State == relay.BodyReceiving && !firstEnd.IsZero() && s.db.Now().Sub(firstEnd) > receivingTime {
		b.State = relay.BodyAborted
	}
	if i := slices.IndexFunc(e.Attempts, func(a relay.Attempt) bool { return a.N == ended }); ended > 1 && ended <= e.AttemptCount-relay.ShownAttempts && i >= 0 {
		last := e.Attempts[i]
		e.Ended, e.Attempts = &last, slices.Delete(e.Attempts, i, i+1)
	}
}

// Summaries reads list rows for the feed, in the order of ids. Deleted events are left out.
func (s *Store) Summaries(ctx context.Context, ids []relay.ID) ([]relay.Event, error) {
	var out []relay.Event
	for some := range slices.Chunk(ids, 200) {
		in, args := db.ColumnIn(`e.id`, some)
		var rows []relay.Event
		err := s.db.View(ctx, "read summaries", func(q db.Query) (err error) {
			if rows, err = db.RowsOf(q, markedFields, `SELECT `+markedColumns+` FROM events e JOIN aliases al ON al.id = e.alias_id`+marksJoin+` WHERE `+in, args...); err != nil {
				return err
			}
			return readCauses(q, rows)
		})
		if err != nil {
			return nil, err
		}
		byID := map[relay.ID]*relay.Event{}
		for i := range rows {
			byID[rows[i].ID] = &rows[i]
		}
		for _, id := range some {
			if e := byID[id]; e != nil {
				out = append(out, *e)
			}
		}
	}
	return out, nil
}

// snapshotHead is the largest size in bytes of an attempt's heads in a snapshot. The live feed keeps
// snapshots of hundreds of changes; it reads larger heads from the database.
const snapshotHead = 8 << 10

// AttemptSnapshot returns an attempt that is about to be stored in the form in which a later read returns it,
// without its body. It returns nil if the heads of the attempt are large, or if its error text has to be read
// from its stored response.
func AttemptSnapshot(a *relay.Attempt, node string) *relay.Attempt {
	heads := len(a.Response.Head) + len(a.Response.Lines) + len(a.SentHead)
	for _, head := range a.Interim {
		heads += len(head)
	}
	if heads > snapshotHead || a.Response.Body.Parts > 0 && a.Status >= http.StatusBadRequest {
		return nil
	}
	out := *a
	out.ReceivedAt, out.StartedAt, out.EndedAt = db.StoredTime(a.ReceivedAt), db.StoredTime(a.StartedAt), db.StoredTime(a.EndedAt)
	out.Actor, out.Connection, out.ResponseState, out.Node = db.StorableText(a.Actor), db.StorableText(a.Connection), db.StorableText(a.ResponseState), node
	out.Error, out.Handshake = StoredFault(a.Error), ""
	out.Timing, out.HasTiming = unpackTiming(PackTiming(a))
	b := &out.Response.Body
	out.Cause = record.Cause(a.Status, a.Response.Head, b)
	if b.Parts == 0 {
		b.Stored = int64(len(b.Data))
	}
	if b.Data, b.State = nil, db.StorableText(b.State); !a.HasResponse {
		out.Response = relay.Message{}
	}
	return &out
}
