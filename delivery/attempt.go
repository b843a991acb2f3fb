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
	x.handOver()
}

// handOver passes the event that prepareAccept has filled to the store.
func (x *exchange) handOver() {
	x.accepted = true
	x.accept = x.d.store.Accept(x.event)
}

// prepareAccept fills the event with as much of its request as has come.
func (x *exchange) prepareAccept() {
	x.acceptedWhole = x.req.rec.isWhole()
	state := relay.BodyComplete
	if !x.acceptedWhole {
		state = relay.BodyReceiving
	}
	e := x.event
	e.State = relay.StateDelivering
	x.fillRequest(state)
	a := x.attempt
	a.State = relay.StateDelivering
	e.Attempts = []relay.Attempt{a}
	e.AttemptCount = 1
}

// sendAcceptAndFinish asks the store for both steps of an attempt whose response is whole
// already. Both are prepared before the first one is handed over: the committer takes what
// waits at once, and whatever runs between the two steps gives it the time to commit the
// first one alone.
func (x *exchange) sendAcceptAndFinish() {
	x.prepareAccept()
	a := x.ended(relay.StateDelivered, nil)
	x.handOver()
	x.finish = x.d.store.Finish(x.event.ID, &a, "")
}

// fillRequest copies the request that was received so far into the event.
func (x *exchange) fillRequest(bodyState string) {
	e := x.event
	e.Request = x.req.rec.message(e.Request.Head, x.req.head.Framing, bodyState)
	e.Provider = record.Recognise(e.Request.Head, x.req.rec.beginning())
}

// sendFinish asks the store to end the attempt. event is the state of the event where that
// differs from the state of the attempt, else empty.
func (x *exchange) sendFinish(state string, why *relay.Error, event string) {
	a := x.ended(state, why)
	if next, ok := x.st.nextClaim(); ok && x.queued && x.claim == nil && state != relay.StateInterrupted {
		x.st.queue.move()
		x.finish, x.claim = x.d.store.FinishAndClaim(x.event.ID, &a, event, next)
		x.claimEnd = x.finish
		return
	}
	x.finish = x.d.store.Finish(x.event.ID, &a, event)
}

// ended returns the attempt as it has ended.
func (x *exchange) ended(state string, why *relay.Error) relay.Attempt {
	if x.at.end.IsZero() {
		x.at.end = time.Now()
	}
	x.awaitLastWrite()
	a := x.attempt
	a.State, a.EndedAt = state, x.at.end
	a.Error = asFault(why)
	x.recordSent(&a)
	a.Timing, a.HasTiming = x.timing(), true
	a.Interim = x.interim
	if x.final != nil {
		a.HasResponse = true
		a.Status = x.final.Status
		a.ResponseState = x.state
		body := relay.BodyComplete
		if _, over := x.res.progress(); over {
			body = relay.BodyOverLimit
		}
		x.res.stop(x.body)
		a.Response = x.res.message(x.final.Raw, x.final.Framing, body)
	}
	if x.finish == nil {
		x.finished(&a)
	}
	return a
}

// recordSent notes in the attempt how the request was sent.
func (x *exchange) recordSent(a *relay.Attempt) {
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
	case x.acceptedWhole:
		a.Identical = new(bool) // the answer came before all of the request was sent
	}
}

// awaitLastWrite waits a moment for an upload whose last write is about to return: the
// answer can arrive before that.
func (x *exchange) awaitLastWrite() {
	if !x.uploading || !x.req.rec.isWhole() || x.allWritten.Load() {
		return
	}
	const moment = 10 * time.Millisecond
	t := time.NewTimer(moment)
	defer t.Stop()
	select {
	case u := <-x.uploadDone:
		x.uploadEnded(u)
		if u.how == whole {
			x.at.whole = u.at
		}
	case <-t.C:
	}
}

// timing returns how long each phase of the attempt took.
func (x *exchange) timing() relay.Timing {
	at := &x.at
	var t relay.Timing
	switch {
	case at.admitted.IsZero():
		t.Blocked = at.end.Sub(at.start)
		return t
	case at.open.IsZero():
		t.Blocked, t.Connect = at.admitted.Sub(at.start), at.end.Sub(at.admitted)
		t.Blocked += x.queuedFor()
		return t
	}
	t.Blocked = at.admitted.Sub(at.start) + x.queuedFor()
	if !x.reused {
		t.Connect = at.open.Sub(at.admitted)
	}
	first := at.first
	if first.IsZero() {
		first = at.end
	}
	sent := at.whole
	if sent.IsZero() || sent.After(first) {
		sent = first
	}
	t.Send = sent.Sub(at.open)
	t.Wait = first.Sub(sent)
	t.Receive = max(0, at.end.Sub(first))
	return t
}

// queuedFor returns how long a queued attempt was in the queue.
func (x *exchange) queuedFor() time.Duration {
	if !x.queued || x.attempt.ReceivedAt.IsZero() {
		return 0
	}
	return max(0, x.at.start.Sub(x.attempt.ReceivedAt))
}

func asFault(e *relay.Error) *relay.Fault {
	if e == nil {
		return nil
	}
	return &relay.Fault{Code: e.Code, Message: e.Detail}
}

// recordIfUnstored ends an attempt whose end was not stored because of its answer, of which
// a part may be missing. Without it, the attempt would stay in the state delivering.
func (x *exchange) recordIfUnstored() {
	if x.final != nil && x.finish != nil && closed(x.finish.Done()) && x.finish.Err() != nil {
		x.recordUnstored()
	}
}

// recordUnstored ends the attempt without its response, with an error that says that the
// response could not be stored.
func (x *exchange) recordUnstored() {
	a := x.attempt
	a.State, a.EndedAt = relay.StateDelivered, x.at.end
	a.Error = &relay.Fault{
		Code:    relay.CodeResponseNotStored,
		Message: "the local server answered, but its answer could not be stored, so the caller did not get it whole",
	}
	if x.fault != nil && x.fault.Code == relay.CodeTunnelLost {
		a.State, a.Error = relay.StateInterrupted, asFault(x.fault)
	}
	x.recordSent(&a)
	a.Timing, a.HasTiming = x.timing(), true
	x.d.store.Finish(x.event.ID, &a, "")
}

// panicked ends an exchange whose goroutine panicked: its attempt is marked as
// interrupted, its channel and slot are returned. The exchange is not used again, because
// its state is unknown; what fails here too is left to the store, which
// marks claims that nobody runs.
func (x *exchange) panicked() {
	defer func() { _ = recover() }()
	defer x.unreserve()
	defer x.releaseChannel()
	x.timer.Stop()
	x.stopReading.Store(true)
	x.signalContinue(false)
	if x.req.caller != nil {
		x.req.caller.Abort() // ends an upload that runs
	}
	if x.event == nil {
		return
	}
	defer x.d.underWay.remove(x.ref())
	if !x.accepted {
		x.sendAccept()
	}
	if x.finish == nil {
		a := x.attempt
		a.State, a.EndedAt = relay.StateInterrupted, time.Now()
		a.Error = &relay.Fault{Code: relay.CodeInternal, Message: "the relay failed while it served this request; its log has the reason"}
		x.finish = x.d.store.Finish(x.event.ID, &a, "")
	}
	if !x.acceptedWhole && !x.uploading {
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
