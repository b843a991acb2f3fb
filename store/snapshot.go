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
	row := f.row()
	e, a := row.event(), f.attempt
	if a == nil || a.State == relay.StateQueued { // its position is known to the queue only
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
	state, err := stateCode(a.State)
	if heads > snapshotHead || err != nil {
		return nil
	}
	row, payload := newAttemptRow(relay.ID{}, 0, a, state, "", 0), responseRow(a)
	payload.Body, row.NodeName = nil, node
	out := row.attempt()
	fillAttempt(&out, &payload)
	return &out
}
