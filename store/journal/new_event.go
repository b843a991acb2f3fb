package journal

import (
	"cmp"
	"net/http"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/events"
)

// readBack sets e to the event in the form in which its row is read back: with the outcome of its attempt, times in
// microseconds, and texts that both engines accept.
func (f *newEvent) readBack(e *relay.Event) {
	*e = *f.event
	a := f.attempt
	e.ReceivedAt, e.State, e.Blocker = db.StoredTime(e.ReceivedAt), events.States[f.state], blockerOf(f)
	e.LastReceivedAt, e.Target = e.ReceivedAt, db.NonNil(e.Target)
	e.Request, e.ForwardedLines, e.Attempts = relay.Message{Body: relay.Body{Size: f.request.Body.Size}}, nil, nil
	if e.Signature != nil {
		kept := *e.Signature
		kept.Provider, kept.Message = db.StorableText(kept.Provider), db.StorableText(kept.Message)
		e.Signature = &kept
	}
	p := &e.Provider
	p.SignedAt, p.Tolerance = db.StoredTime(p.SignedAt), p.Tolerance.Truncate(time.Microsecond)
	e.Status, e.Latency, e.HasLatency, e.AttemptCount = 0, 0, false, 0
	if a != nil {
		e.LastReceivedAt, e.AttemptCount, e.Error = db.StoredTime(a.ReceivedAt), a.N, cmp.Or(e.Error, a.Error)
		if f.ended() {
			events.SetOutcome(e, a)
			e.Handshake = a.Handshake
		}
	}
	e.Error = events.StoredFault(e.Error)
	events.MakeStorable(e)
}

// ended reports whether the first attempt has ended.
func (f *newEvent) ended() bool {
	return f.attempt != nil && f.attempt.State != relay.StateQueued && f.attempt.State != relay.StateDelivering
}

// storeRow sets row to the row of the event.
func (f *newEvent) storeRow(row *events.NewRow) {
	f.readBack(&row.Event)
	row.State, row.EndedN, row.Latency = f.state, 0, nil
	if f.ended() {
		row.EndedN, row.Latency = f.attempt.N, events.LatencyMicros(f.attempt)
	}
}

// blockerOf returns the reason why a new event cannot be replayed, "" if it can.
func blockerOf(f *newEvent) string {
	switch {
	case f.state == events.Rejected:
		return relay.BlockedRejected
	case f.state == events.Incomplete:
		return relay.BlockedIncomplete
	case f.blocker != "":
		return f.blocker
	}
	return events.BodyBlocker(f.request.Body.State)
}

// snapshot returns a new event and its attempt in the form in which Summaries and AttemptHeads would read them
// after the batch, because reading them back took a third of relayd's time for a request. The attempt is nil
// if the event has none, if it is queued, or if AttemptSnapshot returns nil. Both are nil if Alias of the
// event is not set, or if AttemptSnapshot returns nil for an attempt with an error response, because the error
// text of the event has to be read from that response.
func (f *newEvent) snapshot(node string) (*relay.Event, *relay.Attempt) {
	if f.event.Alias == "" {
		return nil, nil
	}
	e, a := &relay.Event{}, f.attempt
	f.readBack(e)
	if a == nil || a.State == relay.StateQueued { // only the queue knows the position of a queued attempt
		return e, nil
	}
	shown := events.AttemptSnapshot(a, node)
	switch {
	case shown != nil:
		e.Cause = shown.Cause
	case a.Status >= http.StatusBadRequest:
		return nil, nil
	}
	return e, shown
}
