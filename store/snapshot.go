package store

import (
	"time"

	"relay"
)

// snapshotHead is how large the heads of an attempt may be for a snapshot, in bytes. The
// live feed keeps snapshots of hundreds of changes; it reads larger heads from the database.
const snapshotHead = 8 << 10

// snapshot gives a new event and its attempt as Summaries and AttemptHeads read them after
// the batch, without reading: the live feed shows each new event, and reading it back cost a
// third of what relayd spent on a request. Both are nil for an event without the name of
// its alias; the attempt is nil where there is none to show, or its heads are large.
func (f *newEvent) snapshot(node string) (*relay.Event, *relay.Attempt) {
	e := *f.event
	if e.Alias == "" {
		return nil, nil
	}
	e.ReceivedAt, e.LastReceivedAt = stored(e.ReceivedAt), stored(e.ReceivedAt)
	e.Method, e.Host = storableText(e.Method), storableText(e.Host)
	e.Provider = storedProvider(e.Provider)
	e.State, e.Error, e.Blocker = states[f.state], storedFault(e.Error), blockerOf(&relay.Event{Request: *f.request, Blocker: f.blocker}, f.state)
	e.Status, e.HasLatency, e.Latency, e.AttemptCount = 0, false, 0, 0
	e.Request = relay.Message{Body: relay.Body{Size: f.request.Body.Size}}
	e.Attempts, e.ForwardedLines = nil, nil
	if f.attempt == nil {
		return &e, nil
	}
	a := *f.attempt
	e.LastReceivedAt, e.AttemptCount = stored(a.ReceivedAt), a.N
	if e.Error == nil {
		e.Error = storedFault(a.Error)
	}
	if a.State != relay.StateQueued && a.State != relay.StateDelivering {
		e.Status = a.Status
		if a.HasTiming {
			e.Latency, e.HasLatency = max(a.Timing.Latency(), 0).Truncate(time.Microsecond), true
		}
	}
	if a.State == relay.StateQueued { // its position is known to the queue only
		return &e, nil
	}
	return &e, attemptSnapshot(a, node)
}

// endSnapshot gives an attempt that ended in a later batch than its event came: of a live
// request, because nothing else is known of the others.
func endSnapshot(st *step, row *attemptRow, node string) func() (*relay.Event, *relay.Attempt) {
	if row.Kind != original || row.FromQueue != 0 || st.state != "" || st.attempt.StartedAt.IsZero() {
		return nil
	}
	received := fromMicros(row.ReceivedAt)
	return func() (*relay.Event, *relay.Attempt) {
		a := *st.attempt
		a.Kind, a.ReceivedAt, a.Actor, a.Released = relay.KindOriginal, received, "", false
		return nil, attemptSnapshot(a, node)
	}
}

// attemptSnapshot gives an attempt as it is read, without its body; nil where its heads are
// large.
func attemptSnapshot(a relay.Attempt, node string) *relay.Attempt {
	heads := len(a.Response.Head) + len(a.Response.Lines) + len(a.SentHead)
	for _, head := range a.Interim {
		heads += len(head)
	}
	if heads > snapshotHead {
		return nil
	}
	a.Node = node
	if a.Kind != relay.KindReplay {
		a.Kind = relay.KindOriginal
	}
	a.ReceivedAt, a.StartedAt, a.EndedAt = stored(a.ReceivedAt), stored(a.StartedAt), stored(a.EndedAt)
	a.Actor, a.Connection, a.ResponseState = storableText(a.Actor), storableText(a.Connection), storableText(a.ResponseState)
	a.Error = storedFault(a.Error)
	a.Timing, a.HasTiming = unpackTiming(packTiming(&a))
	if a.HasResponse {
		body := &a.Response.Body
		if body.Parts == 0 {
			body.Stored = int64(len(body.Data))
		}
		body.Data, body.State = nil, storableText(body.State)
	} else {
		a.Response = relay.Message{}
	}
	return &a
}

// stored is a time as it comes back from the database.
func stored(t time.Time) time.Time { return fromMicros(micros(t)) }

func storedFault(f *relay.Fault) *relay.Fault { return faultOf(faultText(f)) }

func storedProvider(p relay.Provider) relay.Provider {
	p.Name, p.EventType, p.DeliveryID = storableText(p.Name), storableText(p.EventType), storableText(p.DeliveryID)
	p.SignedAt, p.Tolerance = stored(p.SignedAt), p.Tolerance.Truncate(time.Microsecond)
	return p
}
