package journal

import (
	"slices"
	"strings"

	"relay"
	"relay/record"
	"relay/store/db"
	"relay/store/events"
)

// finish ends attempts; steps holds at most one for each event.
func (w *writer) finish(steps []*step) error {
	var ready []*step
	var rows [][]any
	for _, st := range steps {
		if st.Attempt.State == "" {
			if err := w.callerGone(st); err != nil {
				return err
			}
			continue
		}
		row, err := w.finishArgs(st)
		if err != nil {
			return err
		}
		if row != nil {
			ready, rows = append(ready, st), append(rows, row)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	ended, err := db.Returning(w.Batch, finishAttempts, rows, func(r *events.AttemptRow) []any {
		return []any{&r.EventID, &r.N, &r.AliasID, &r.Kind, &r.FromQueue, &r.ReceivedAt, &r.Bytes}
	}, strings.Join(w.target.claimants(), " "))
	if err != nil {
		return err
	}
	byID := make(map[relay.ID]*events.AttemptRow, len(ended))
	for i := range ended {
		byID[ended[i].EventID] = &ended[i]
	}
	var ours []*step
	var fromQueue [][]any
	for _, st := range ready {
		row := byID[st.ID]
		if row == nil {
			if err := w.explainMissedFinish(st); err != nil {
				return err
			}
			continue
		}
		if ours = append(ours, st); row.FromQueue != 0 {
			fromQueue = append(fromQueue, []any{st.ID, st.Attempt.N})
		}
	}
	if err := w.storeEnds(ours, byID); err != nil {
		return err
	}
	if err := w.Run(dequeueAttempts, fromQueue); err != nil {
		return err
	}
	for _, st := range ours {
		if err := w.afterFinish(st, byID[st.ID]); err != nil {
			return err
		}
	}
	return nil
}

// callerGone stores that the caller of an attempt did not get the whole response.
func (w *writer) callerGone(st *step) error {
	var alias []int64
	if err := w.All(&alias, `SELECT alias_id FROM attempts WHERE event_id = ? AND n = ?`, st.ID, st.Attempt.N); err != nil {
		return err
	}
	if len(alias) == 0 {
		st.err = relay.ErrNotFound
		return nil
	}
	w.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: alias[0], Event: st.ID, N: st.Attempt.N})
	return w.Run(events.SetCallerGone, [][]any{{st.ID, st.Attempt.N}})
}

// finishArgs returns the values of a row of finishAttempts; nil if the step is invalid.
func (w *writer) finishArgs(st *step) ([]any, error) {
	a := st.Attempt
	state, err := events.StateCode(a.State)
	if err != nil || state == events.Queued || state == events.Delivering {
		st.err = relay.Errorf(relay.CodeInternal, "an attempt cannot end as %q", a.State)
		return nil, nil
	}
	if _, err := finishState(st); err != nil {
		st.err = relay.Errorf(relay.CodeInternal, "an event cannot be %q", st.State)
		return nil, nil
	}
	if ok, err := w.partsStored(st.ID, a.N, a.Response.Body.Parts); err != nil || !ok {
		st.err = events.ErrPartsLost
		return nil, err
	}
	code, message := events.FaultText(a.Error)
	return []any{
		st.ID, a.N, state, db.Micros(a.StartedAt), db.Micros(a.EndedAt), code, message, db.StorableText(a.Connection), events.Identical(a), events.PackTiming(a),
		db.BoolToInt(a.HasResponse), a.Status, db.StorableText(a.ResponseState),
	}, nil
}

// explainMissedFinish finds the reason why a Finish changed no row. If it was committed before and
// only the result was lost, its changes are published now. Otherwise the step fails: another process
// has taken the attempt, or the event was never stored.
func (w *writer) explainMissedFinish(st *step) error {
	var rows []events.AttemptRow
	if err := w.All(&rows, `SELECT alias_id, state, ended_at, claim_node FROM attempts WHERE event_id = ? AND n = ?`, st.ID, st.Attempt.N); err != nil {
		return err
	}
	if len(rows) == 0 {
		st.err = relay.ErrNotFound
		return nil
	}
	r := rows[0]
	state, _ := events.StateCode(st.Attempt.State)
	if r.State != state || r.EndedAt != db.Micros(st.Attempt.EndedAt) || !slices.Contains(w.target.claimants(), r.ClaimNode) {
		st.err = relay.ErrFenced
		return nil
	}
	w.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: r.AliasID, Event: st.ID, N: st.Attempt.N},
		relay.Change{Kind: relay.ChangeQueue, Alias: r.AliasID})
	return nil
}

// storeEnds stores the bytes of ended attempts, and copies their outcome to the rows of their events.
func (w *writer) storeEnds(steps []*step, rows map[relay.ID]*events.AttemptRow) error {
	var payloads, ends, refused, redirected, gone, handshakes [][]any
	for _, st := range steps {
		a := st.Attempt
		if a.ResponseState == relay.ResponseUpgraded || a.Error != nil && a.Error.Code == relay.CodeResponseNotStored { // Finish may have been called before for this attempt
			var before []int64
			if err := w.All(&before, `DELETE FROM payloads WHERE event_id = ? AND n = ? RETURNING `+events.PayloadBytes, st.ID, a.N); err != nil {
				return err
			}
			for _, bytes := range before {
				w.addUsage(rows[st.ID].AliasID, -bytes)
			}
		}
		if events.HasPayload(a) {
			payloads = append(payloads, events.ResponseValues(st.ID, a))
		}
		state, _ := finishState(st) // finishArgs has checked the error
		code, message := events.FaultText(a.Error)
		ends = append(ends, []any{st.ID, a.N, state, code, message, a.Status, events.LatencyMicros(a), upgradeBlocker(a, "")})
		if by := events.RefusedBy(a); by != "" {
			refused = append(refused, []any{st.ID, a.N, by})
		} else if host, target, ok := record.RedirectTo(a.Status, a.Response.Head); ok {
			redirected = append(redirected, []any{st.ID, a.N, host, target})
		}
		if a.CallerGone {
			gone = append(gone, []any{st.ID, a.N})
		}
		if a.Handshake != "" {
			handshakes = append(handshakes, []any{st.ID, a.Handshake})
		}
	}
	if err := w.Run(events.SetCallerGone, gone); err != nil {
		return err
	}
	if err := w.Run(events.SetHandshake, handshakes); err != nil {
		return err
	}
	if err := w.Run(insertPayloads, payloads); err != nil {
		return err
	}
	if err := w.Run(events.EndEvent, ends); err != nil {
		return err
	}
	if err := w.Run(events.SetHostRefusedBy, refused); err != nil {
		return err
	}
	return w.Run(events.SetRedirected, redirected)
}

// afterFinish applies the consequences of an ended attempt: an interrupted delivery from the queue is
// queued again, and a delivered replay supersedes a first attempt that is still queued.
func (w *writer) afterFinish(st *step, row *events.AttemptRow) error {
	a := st.Attempt
	w.addUsage(row.AliasID, events.AttemptStoredSize(a))
	w.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: row.AliasID, Event: st.ID, N: st.Attempt.N})
	switch {
	case a.State == relay.StateInterrupted && row.FromQueue != 0:
		return events.Requeue(w.Batch.Tx, row)
	case a.State == relay.StateDelivered && row.Kind == events.Replay:
		return supersede(w.Batch.Tx, st.ID, row.AliasID)
	}
	return nil
}

var supersededFault = relay.Fault{Code: relay.CodeSuperseded, Message: "a replay was delivered while this attempt still waited"}

// supersede cancels the first attempt of an event if it is queued.
func supersede(c *db.Tx, id relay.ID, alias int64) error {
	n, err := c.Exec(`UPDATE attempts SET state = 5, ended_at = ?, error_code = ?, error_message = ?, released = `+events.ReleasedWhileQueued+`
		WHERE event_id = ? AND n = 1 AND state = 0`, db.Micros(c.Now()), supersededFault.Code, supersededFault.Message, id)
	if err != nil || n == 0 {
		return err
	}
	c.Publish(relay.Change{Kind: relay.ChangeAttempt, Alias: alias, Event: id, N: 1}, relay.Change{Kind: relay.ChangeQueue, Alias: alias})
	events.DequeueAttempt(c, id, 1)
	return nil
}
