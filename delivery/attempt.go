package delivery

import (
	"fmt"
	"runtime/debug"
	"time"

	"relay"
	"relay/record"
)

// sendAccept asks the store to accept the event, with as much of its request as has come.
func (x *exchange) sendAccept() {
	x.prepareAccept()
	x.accept = x.d.store.Accept(x.event)
}

// prepareAccept fills the event with as much of its request as has come.
func (x *exchange) prepareAccept() {
	x.accepted = acceptedPart
	state := relay.BodyReceiving
	if x.rec.isWhole() {
		x.accepted, state = acceptedWhole, relay.BodyComplete
	}
	x.fillRequest(state)
	x.addAttempt(x.attempt, relay.StateDelivering)
}

// addAttempt gives the event its first attempt, and both the same state.
func (x *exchange) addAttempt(a relay.Attempt, state string) {
	a.State = state
	x.event.State, x.event.Attempts, x.event.AttemptCount = state, []relay.Attempt{a}, 1
}

// fillRequest copies the request that was received so far into the event.
func (x *exchange) fillRequest(bodyState string) {
	e := x.event
	e.Request = x.rec.message(e.Request.Head, x.head.Framing, bodyState)
	beginning := e.Request.Body.Data
	if e.Request.Body.Parts > 0 {
		beginning = x.rec.first
	}
	e.Provider = record.Recognise(e.Request.Head, beginning)
}

// sendFinish asks the store to end the attempt, and to accept the event if that was not done.
// event is the state of the event where that differs from the state of the attempt, else
// empty. Both steps are prepared before the first one is handed over: the committer takes what
// waits at once, and whatever runs between the two steps gives it the time to commit the
// first one alone.
func (x *exchange) sendFinish(state string, why *relay.Error, event string) {
	first := x.accepted == notAccepted
	if first {
		x.prepareAccept()
	}
	a := x.ended(state, why)
	if first {
		x.accept = x.d.store.Accept(x.event)
	}
	if next, ok := x.d.nextClaim(x.st); ok && x.queued && x.claim == nil && state != relay.StateInterrupted {
		x.st.Queue.Move()
		x.finish, x.claim = x.d.store.FinishAndClaim(x.event.ID, &a, event, next)
		return
	}
	x.finish = x.d.store.Finish(x.event.ID, &a, event)
}

// ended returns the attempt as it has ended.
func (x *exchange) ended(state string, why *relay.Error) relay.Attempt {
	if x.at.end.IsZero() {
		x.at.end = time.Now()
	}
	x.joinUpload()
	a := x.attempt
	a.State, a.EndedAt = state, x.at.end
	a.Error = asFault(why)
	if a.Error != nil && len(x.refused) > 0 {
		a.Error.Message += fmt.Sprintf("; it sent %q", x.refused)
	}
	x.recordSent(&a)
	x.gone = x.gone || x.callerLeft()
	a.CallerGone = x.gone
	a.Interim = x.interim
	if x.final != nil {
		a.HasResponse = true
		a.Status = x.final.Status
		a.ResponseState = x.state
		body := relay.BodyComplete
		if _, over := x.res.progress(); over {
			body = relay.BodyOverLimit
		}
		x.res.stop(x.resBody)
		a.Response = x.res.message(x.final.Raw, x.final.Framing, body)
	}
	if x.finish == nil {
		x.finished(&a)
	}
	return a
}

// callerLeft reports whether the caller is known to have left, or was cut off, before it got
// the whole answer. An upgraded connection has none.
func (x *exchange) callerLeft() bool {
	if x.caller == nil || x.state == relay.ResponseUpgraded {
		return false
	}
	return x.callerState >= callerGone || x.reqEnd.how == gone || x.caller.Presence() == relay.CallerReset
}

// noteGone stores that the caller has left if that is seen only after the end of the attempt
// was handed over: the last bytes of an answer go out after that. Only one goroutine may look at
// what was read from the caller.
func (x *exchange) noteGone() {
	if !x.gone && (x.callerLeft() || !x.uploading && x.caller.Left()) {
		x.gone = true
		x.d.store.CallerGone(x.event.ID, x.attempt.N)
	}
}

// recordSent notes in the attempt how the request was sent, and how long each phase took.
func (x *exchange) recordSent(a *relay.Attempt) {
	a.Timing, a.HasTiming = x.timing(), true
	if x.ch == nil {
		return
	}
	a.Connection = relay.ConnectionNew
	if x.reused {
		a.Connection = relay.ConnectionReused
	}
	if len(x.wire) != len(x.event.Request.Head) || &x.wire[0] != &x.event.Request.Head[0] {
		a.SentHead = x.wire
	}
	// The hashes may be read only once the upload has stopped writing.
	switch {
	case x.reqEnd.how == whole || x.allWritten.Load():
		same := x.raw.Sum64() == x.written.Sum64()
		a.Identical = &same
	case x.accepted == acceptedWhole:
		a.Identical = new(bool) // the answer came before all of the request was sent
	}
}

// amendWhole stores a request that became whole after its event was accepted, before its
// attempt ends: when the caller has the whole answer, the record has the whole request.
func (x *exchange) amendWhole() {
	if x.accepted != acceptedPart {
		return
	}
	x.joinUpload()
	if x.reqEnd.how == whole {
		x.amend()
		x.accepted = acceptedWhole
	}
}

// amend stores the end of a request that was accepted before it was whole.
func (x *exchange) amend() {
	state := relay.BodyAborted
	switch {
	case x.reqEnd.how == whole:
		state = relay.BodyComplete
	case x.reqEnd.how == tooLarge:
		state = relay.BodyOverLimit
	case x.bodyNotSent():
		state = relay.BodyNotSent
	}
	x.rec.stop(x.body)
	m := x.rec.message(x.event.Request.Head, x.head.Framing, state)
	x.d.store.Amend(x.event.ID, &m)
}

// timing returns how long each phase of the attempt took. What has not happened took no time.
func (x *exchange) timing() relay.Timing {
	or := func(t, otherwise time.Time) time.Time {
		if t.IsZero() {
			return otherwise
		}
		return t
	}
	at, end := &x.at, x.at.end
	admitted, open, first := or(at.admitted, end), or(at.open, end), or(at.first, end)
	sent := or(at.whole, first)
	if sent.After(first) {
		sent = first
	}
	t := relay.Timing{
		Blocked: admitted.Sub(at.start), Connect: open.Sub(admitted),
		Send: sent.Sub(open), Wait: first.Sub(sent), Receive: max(0, end.Sub(first)),
	}
	if x.reused {
		t.Connect = 0
	}
	if x.queued && !x.attempt.ReceivedAt.IsZero() {
		t.Blocked += max(0, at.start.Sub(x.attempt.ReceivedAt))
	}
	return t
}

func asFault(e *relay.Error) *relay.Fault {
	if e == nil {
		return nil
	}
	return &relay.Fault{Code: e.Code, Message: e.Detail}
}

var errResponseNotStored = relay.Errorf(relay.CodeResponseNotStored,
	"the local server answered, but its answer could not be stored in time, so the caller did not get it whole")

// recordUnstored ends the attempt without its response, with an error that says that the
// response could not be stored.
func (x *exchange) recordUnstored() {
	a := x.attempt
	a.State, a.EndedAt, a.Error = relay.StateDelivered, x.at.end, asFault(errResponseNotStored)
	if x.fault != nil && x.fault.Code == relay.CodeTunnelLost {
		a.State, a.Error = relay.StateInterrupted, asFault(x.fault)
	}
	x.gone = x.gone || x.callerLeft()
	a.CallerGone = x.gone
	x.recordSent(&a)
	x.d.store.Finish(x.event.ID, &a, "")
}

// panicked ends an exchange whose goroutine panicked: its attempt is marked as
// interrupted, its channel and slot are returned. The exchange is not used again, because
// its state is unknown; what fails here too is left to the store, which
// marks claims that nobody runs.
func (x *exchange) panicked() {
	defer func() { _ = recover() }()
	defer x.space.release()
	defer x.res.release()
	defer func() {
		if !x.uploading {
			x.rec.release()
		}
	}()
	x.timer.Stop()
	x.stopReading.Store(true)
	x.signalContinue(false)
	x.releaseChannel()
	if x.caller != nil {
		x.caller.Abort()
	}
	if x.event == nil {
		return
	}
	defer x.d.underWay.remove(x.ref())
	if x.uploading {
		select {
		case x.reqEnd = <-x.uploadDone:
			x.uploading = false
		case <-time.After(partWait): // it may wait for the store
		}
	}
	if x.accepted == notAccepted {
		x.sendAccept()
	}
	if x.finish == nil {
		a := x.attempt
		a.State, a.EndedAt = relay.StateInterrupted, time.Now()
		a.Error = &relay.Fault{Code: relay.CodeInternal, Message: "the relay failed while it served this request; its log has the reason"}
		x.finish = x.d.store.Finish(x.event.ID, &a, "")
	}
	if x.accepted != acceptedWhole && !x.uploading {
		x.amend()
	}
}

// panicError is a panic of one goroutine of an exchange, with the stack of that goroutine.
type panicError struct {
	value any
	stack []byte
}

// Error contains the stack: who logs a panic with this value knows only its own stack.
func (p *panicError) Error() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

// asPanic returns what recover gave as an error, nil if there was no panic. A deferred
// function calls it, while the stack of the panic is still there.
func asPanic(v any) *panicError {
	if v == nil {
		return nil
	}
	if p, ok := v.(*panicError); ok {
		return p
	}
	return &panicError{v, debug.Stack()}
}
