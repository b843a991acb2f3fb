package store

import "relay"

// snapshotHead is how large the heads of an attempt may be for a snapshot, in bytes. The
// live feed keeps snapshots of hundreds of changes; it reads larger heads from the database.
const snapshotHead = 8 << 10

// snapshot gives a new event and its attempt as Summaries and AttemptHeads read them after
// the batch, without reading: the live feed shows each new event, and reading it back cost a
// third of what relayd spent on a request. Both are nil for an event without the name of
// its alias; the attempt is nil where there is none to show, or its heads are large.
func (f *newEvent) snapshot(node string) (*relay.Event, *relay.Attempt) {
	if f.event.Alias == "" {
		return nil, nil
	}
	e, a := f.stored(), f.attempt
	if a == nil || a.State == relay.StateQueued { // its position is known to the queue only
		return &e, nil
	}
	return &e, attemptSnapshot(a, node)
}

// endSnapshot gives an attempt that ended in a later batch than its event came: of a live
// request, because nothing else is known of the others.
func endSnapshot(st *step, row *attemptRow, node string) func() (*relay.Event, *relay.Attempt) {
	if row.Kind != original || row.FromQueue != 0 || st.State != "" || st.Attempt.StartedAt.IsZero() {
		return nil
	}
	received := fromMicros(row.ReceivedAt)
	return func() (*relay.Event, *relay.Attempt) {
		a := *st.Attempt
		a.Kind, a.ReceivedAt, a.Actor, a.Released = relay.KindOriginal, received, "", false
		return nil, attemptSnapshot(&a, node)
	}
}

// attemptSnapshot gives an attempt as it is read, without its body; nil where its heads are
// large.
func attemptSnapshot(a *relay.Attempt, node string) *relay.Attempt {
	heads := len(a.Response.Head) + len(a.Response.Lines) + len(a.SentHead)
	for _, head := range a.Interim {
		heads += len(head)
	}
	if heads > snapshotHead {
		return nil
	}
	out := *a
	out.ReceivedAt, out.StartedAt, out.EndedAt = storedTime(a.ReceivedAt), storedTime(a.StartedAt), storedTime(a.EndedAt)
	out.Actor, out.Connection, out.ResponseState, out.Node = storableText(a.Actor), storableText(a.Connection), storableText(a.ResponseState), node
	out.Error = storedFault(a.Error)
	out.Timing, out.HasTiming = unpackTiming(packTiming(a))
	b := &out.Response.Body
	if b.Parts == 0 {
		b.Stored = int64(len(b.Data))
	}
	if b.Data, b.State = nil, storableText(b.State); !a.HasResponse {
		out.Response = relay.Message{}
	}
	return &out
}
