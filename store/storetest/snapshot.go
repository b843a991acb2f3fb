package storetest

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
)

// snapshots checks the events that the store passes on with the change of a commit (snapshots). They must
// equal the events that are read from the database after the commit, whether an event ended in its first
// batch or in a later one.
func (b *fixture) snapshots() {
	seen := map[string]bool{}
	b.snapshotsOf(false, seen)
	b.snapshotsOf(true, seen)
	// Every column needs a value in some event, because the comparison of empty columns proves nothing.
	without := []string{"Attempts", "Ended", "ForwardedLines", "Mark"} // these fields are not in a list row, or not in a new event
	for _, f := range reflect.VisibleFields(reflect.TypeFor[relay.Event]()) {
		if !seen[f.Name] && !slices.Contains(without, f.Name) {
			b.Errorf("no event of the snapshots has a value in %s", f.Name)
		}
	}
}

// snapshotCase is an event with the end of its attempt.
type snapshotCase struct {
	event *relay.Event
	end   *relay.Attempt // nil = the attempt does not end
	state string         // state of the event; "" = the state of the attempt
	head  bool           // the change contains a snapshot of the attempt too
}

// snapshotCases returns new events of each kind, by the names of the kinds.
func (b *fixture) snapshotCases() map[string]snapshotCase {
	const strange = "a\x00b\xffc"
	plain := func(state, path string) *relay.Event { return b.newEvent(b.hooks, state, path, "body") }
	rich := plain(relay.StateDelivering, "/rich")
	rich.Provider = relay.Provider{Name: "stripe", EventType: strange, DeliveryID: "evt_1", SignedAt: rich.ReceivedAt.Add(7), Tolerance: 5*time.Minute + 7}
	rich.Host, rich.Method, rich.ReceivedAt = strange, strange, rich.ReceivedAt.Add(123)
	rich.Attempts[0].ReceivedAt = rich.ReceivedAt
	rich.Signature = &relay.Signature{Provider: "stripe", Verdict: "valid", Reason: "ok", Message: strange, SignedAt: rich.ReceivedAt.UTC().Truncate(time.Second), SecretID: "sec_a"}
	rich.ForwardedLines = []byte("X-Forwarded-For: 203.0.113.9\r\n")
	fillPlain(rich, strange)
	sent := plain(relay.StateDelivering, "/sent")
	sent.Sent = &relay.Sent{Actor: "user:alice", MadeFrom: rich.ID.String(), Changes: []string{"path", "body:/a\u0000"}, SignedBy: relay.SignedByClient}
	half := plain(relay.StateDelivering, "/half")
	half.Request.Body.State = relay.BodyReceiving
	large := ended(1, relay.StateDelivered, 200, "x")
	large.Response.Head = []byte("HTTP/1.1 200 X\r\nX: " + strings.Repeat("y", 20<<10) + "\r\n\r\n")
	upgraded := ended(1, relay.StateDelivered, 101, "")
	upgraded.ResponseState = relay.ResponseUpgraded
	fault := ended(1, relay.StateFailed, 0, "")
	fault.Error.Message, fault.Connection, fault.Identical = strange, strange, nil
	refusedHost := ended(1, relay.StateDelivered, 403, "Invalid Host header")
	redirected := ended(1, relay.StateDelivered, 308, "")
	redirect := plain(relay.StateDelivering, "/redirected")
	redirected.Response.Head = []byte("HTTP/1.1 308 X\r\nLocation: https://" + redirect.Host + "/redirected\r\n\r\n")
	timeless := ended(1, relay.StateInterrupted, 500, "x")
	timeless.Timing, timeless.HasTiming, timeless.SentHead = relay.Timing{}, false, []byte("POST / HTTP/1.1\r\n\r\n")
	gone := ended(1, relay.StateDelivered, 200, "x")
	gone.CallerGone = true
	answered := ended(1, relay.StateAnswered, 200, "challenge")
	answered.Handshake = "slack"
	missed := plain(relay.StateQueued, "/missed")
	missed.MissedHandshake = "slack"
	rejected := plain("", "/rejected")
	rejected.State, rejected.Error = relay.StateRejected, &relay.Fault{Code: relay.CodeRequestMalformed, Message: strange}
	return map[string]snapshotCase{
		"delivered":       {rich, ended(1, relay.StateDelivered, 201, "answer"), "", true},
		"failed":          {plain(relay.StateDelivering, "/failed"), fault, "", true},
		"interrupted":     {plain(relay.StateDelivering, "/interrupted"), timeless, "", true},
		"upgraded":        {plain(relay.StateDelivering, "/upgraded"), upgraded, "", true},
		"sent":            {sent, ended(1, relay.StateDelivered, 200, "x"), "", true},
		"incomplete":      {half, ended(1, relay.StateFailed, 0, ""), relay.StateIncomplete, true},
		"large head":      {plain(relay.StateDelivering, "/large"), large, "", false},
		"caller gone":     {plain(relay.StateDelivering, "/gone"), gone, "", true},
		"host refused":    {plain(relay.StateDelivering, "/host"), refusedHost, "", true},
		"redirected":      {redirect, redirected, "", true},
		"answered":        {plain(relay.StateDelivering, "/answered"), answered, "", true},
		"queued":          {plain(relay.StateQueued, "/queued"), nil, "", false},
		"missed":          {missed, nil, "", false},
		"delivering":      {plain(relay.StateDelivering, "/delivering"), nil, "", false},
		"without attempt": {rejected, nil, "", false},
	}
}

// fillPlain gives a value to each text, number and flag of a new event that has none. Fields that come from the end
// of an attempt, or that few events can have, stay as they are: they have cases of their own.
func fillPlain(e *relay.Event, text string) {
	own := []string{"Status", "HasLatency", "Latency", "AttemptCount", "Blocker", "Cause", "HostRefusedBy", "Handshake", "MissedHandshake"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[relay.Event]()) {
		field := reflect.ValueOf(e).Elem().FieldByIndex(f.Index)
		if !field.IsZero() || slices.Contains(own, f.Name) {
			continue
		}
		switch f.Type.Kind() {
		case reflect.String:
			field.SetString(text)
		case reflect.Int, reflect.Int64:
			field.SetInt(7_000_000) // as a duration 7 ms, because the store keeps microseconds
		case reflect.Bool:
			field.SetBool(true)
		}
	}
}

// snapshotsOf compares the snapshots of events with the stored events, and adds the fields that had values to
// the map seen. If later is set, the events end in a later batch, otherwise in their first one.
func (b *fixture) snapshotsOf(later bool, seen map[string]bool) {
	for name, c := range b.snapshotCases() {
		if later && c.end != nil { // the end of the attempt is stored in a later batch
			b.forget()
			b.ok(b.Accept(c.event))
			b.heard(name, func(change relay.Change) bool { return change.Event == c.event.ID })
			b.compareSnapshots(name, c.event.ID, false, seen)
			b.forget()
			b.ok(b.Finish(c.event.ID, c.end, c.state))
			b.heard(name, func(change relay.Change) bool { return change.Event == c.event.ID })
			b.mu.Lock()
			if len(b.taken) > 0 {
				b.Errorf("%s: the end of an event of an earlier batch has a snapshot", name)
			}
			b.mu.Unlock()
			continue
		}
		id := b.inOneBatch(name, c.event, c.end, c.state)
		b.compareSnapshots(name, id, c.head, seen)
	}
}

// inOneBatch stores an event together with the end of its attempt, and returns its id. If the store has put
// the two into different batches, it tries again with a new event of the same content.
func (b *fixture) inOneBatch(name string, e *relay.Event, end *relay.Attempt, state string) relay.ID {
	for range 50 {
		b.forget()
		accept := b.Accept(e)
		if end != nil {
			b.ok(b.Finish(e.ID, end, state))
		}
		b.ok(accept)
		b.heard(name, func(change relay.Change) bool { return change.Event == e.ID })
		b.mu.Lock()
		together := slices.ContainsFunc(b.taken, func(s snapshot) bool { return s.event != nil && s.event.State != relay.StateDelivering })
		b.mu.Unlock()
		if end == nil || together {
			return e.ID
		}
		another := *e
		another.ID = b.NewID()
		e = &another
	}
	b.Errorf("%s: no snapshot has the event as it ended", name)
	return e.ID
}

// forget drops the received changes and their snapshots.
func (b *fixture) forget() {
	b.mu.Lock()
	b.changes, b.taken = nil, nil
	b.mu.Unlock()
}

// compareSnapshots compares the snapshots of an event with the event as read now. If Accept and Finish
// were in two batches, the first snapshot shows an earlier state.
func (b *fixture) compareSnapshots(name string, id relay.ID, head bool, seen map[string]bool) {
	b.mu.Lock()
	taken := b.taken
	b.mu.Unlock()
	events, err := b.Summaries(b.Context(), []relay.ID{id})
	b.must(err)
	heads, err := b.AttemptHeads(b.Context(), events[0].AliasID, []relay.AttemptRef{{Event: id, N: 1}})
	b.must(err)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[relay.Event]()) {
		seen[f.Name] = seen[f.Name] || !reflect.ValueOf(events[0]).FieldByIndex(f.Index).IsZero()
	}
	if len(taken) == 0 {
		b.Errorf("%s: no snapshot was published", name)
	}
	for _, s := range taken {
		if s.event != nil {
			if s.event.State == relay.StateDelivering && events[0].State != relay.StateDelivering {
				continue
			}
			if d := cmp.Diff(&events[0], s.event, sameBytes); d != "" {
				b.Errorf("%s: the event of the snapshot differs (-read +snapshot):\n%s", name, d)
			}
			if s.event.Remote != events[0].Remote {
				b.Errorf("%s: remote %v, want %v", name, s.event.Remote, events[0].Remote)
			}
		}
		if s.attempt == nil {
			if head {
				b.Errorf("%s: the snapshot has no attempt", name)
			}
			continue
		}
		if d := cmp.Diff(heads[relay.AttemptRef{Event: id, N: 1}], s.attempt, sameBytes); d != "" {
			b.Errorf("%s: the attempt of the snapshot differs (-read +snapshot):\n%s", name, d)
		}
	}
}
