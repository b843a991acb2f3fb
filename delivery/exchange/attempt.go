package exchange

import (
	"fmt"
	"time"

	"relay"
)

// attemptSoFar returns a copy of the attempt as it is known.
func (x *run) attemptSoFar() relay.Attempt {
	if x.attempt != nil {
		return *x.attempt
	}
	a := x.q.Attempt
	a.Connection = x.way
	return a
}

// setEnd makes the attempt as it has ended: with its state, its error and its response. It makes a new
// value, because an earlier one belongs to the journal.
func (x *run) setEnd(state string, why *relay.Error) {
	if x.at.end.IsZero() {
		x.at.end = time.Now()
	}
	x.joinSender()
	a, from := x.attemptSoFar(), &x.answer
	a.State, a.EndedAt = state, x.at.end
	a.Error = asFault(why)
	if a.Error != nil && len(from.refused) > 0 {
		a.Error.Message += fmt.Sprintf(relay.FaultSent+"%q", from.refused)
	}
	x.recordSent(&a)
	a.Interim = from.interim
	if from.final != nil {
		a.HasResponse = true
		a.Status = from.final.Status
		a.ResponseState = from.state
		body := relay.BodyComplete
		if _, over := from.rec.progress(); over {
			body = relay.BodyOverLimit
		}
		from.rec.stop(from.body)
		// A second call of setEnd must not stop the parser again.
		from.body = nil
		a.Response = from.rec.message(from.final.Raw, from.final.Framing, body)
	}
	x.attempt = &a
}

// recordSent stores in the attempt whether its caller has left, how the request was sent, and the
// duration of each phase.
func (x *run) recordSent(a *relay.Attempt) {
	// When an answer is complete, its last piece is not written yet: noteGone checks again after that write
	// whether the caller has left. After an error or a slow answer, the caller may already have left. Then
	// callerLeft also asks the operating system, because noteGone stores its result in a later step, and the
	// relay may be killed before that.
	x.gone = x.gone || x.callerLeft(a.Error != nil || x.slow)
	a.CallerGone = x.gone
	a.Timing, a.HasTiming = x.timing(), true
	q := x.q
	if x.at.open.IsZero() {
		return
	}
	if len(q.sentHead) != len(q.Event.Request.Head) || &q.sentHead[0] != &q.Event.Request.Head[0] {
		a.SentHead = q.sentHead
	}
	// The hashes may be read only once the sender has stopped writing.
	switch {
	case x.end.how == endWhole || x.send.whole.Load():
		same := q.raw.Sum64() == x.send.written.Sum64()
		a.Identical = &same
	case q.accepted == acceptedWhole:
		// The answer came before the whole request was sent.
		a.Identical = new(bool)
	}
}

// callerLeft reports whether the caller is known to have left, or was cut off, before it got the whole answer.
// It returns false for an upgraded connection, because such a connection has no whole answer. If ask is set,
// callerLeft also asks the operating system whether the caller has reset the connection.
func (x *run) callerLeft(ask bool) bool {
	if x.out.sink == nil || x.answer.state == relay.ResponseUpgraded {
		return false
	}
	return x.knownLeft() || ask && x.out.sink.Presence() == relay.CallerReset
}

// knownLeft is callerLeft without asking the operating system: it uses only what the exchange already knows.
func (x *run) knownLeft() bool { return x.out.reader >= readerLeft || x.end.how == endLeft }

// noteGone stores that the caller has left, if the exchange notices it only after it has passed the end of the
// attempt to the journal: the last bytes of a response are sent only then. If the relay is killed before this
// step is stored, the record does not say that the caller has left. While the sender is running, noteGone does not
// call Left, because the sender reads from the caller, and both would use its read buffer.
func (x *run) noteGone() {
	if x.out.sink == nil || x.gone {
		return
	}
	left := x.sending && x.callerLeft(true)
	if !x.sending {
		// Left also asks the operating system whether the caller has reset the connection.
		left = x.answer.state != relay.ResponseUpgraded && x.knownLeft() || x.out.sink.Left()
	}
	if left {
		x.gone = true
		x.journal.CallerGone(x.q.Event.ID, x.q.Attempt.N)
	}
}

// timing returns the duration of each phase of the attempt, 0 for phases that did not happen.
func (x *run) timing() relay.Timing {
	or := func(t, otherwise time.Time) time.Time {
		if t.IsZero() {
			return otherwise
		}
		return t
	}
	at, end := &x.at, x.at.end
	admitted, open, first := or(x.q.Admitted, end), or(at.open, end), or(at.first, end)
	sent := or(at.whole, first)
	if sent.After(first) {
		sent = first
	}
	t := relay.Timing{
		Blocked: admitted.Sub(x.q.began), Connect: open.Sub(admitted),
		Send: sent.Sub(open), Wait: first.Sub(sent), Receive: max(0, end.Sub(first)),
	}
	if x.way == relay.ConnectionReused {
		t.Connect = 0
	}
	if received := x.q.Attempt.ReceivedAt; x.q.Queued && !received.IsZero() {
		t.Blocked += max(0, x.q.began.Sub(received))
	}
	return t
}

func asFault(e *relay.Error) *relay.Fault {
	if e == nil {
		return nil
	}
	return &relay.Fault{Code: e.Code, Message: e.Detail}
}
