package delivery

import (
	"errors"
	"time"

	"relay"
)

// conclude turns the end of an inbound exchange into what the caller gets.
func (x *exchange) conclude(v verdict) relay.Outcome {
	switch v {
	case complete:
		return x.answered()
	case spliced:
		return x.splice()
	case unsent:
		x.leave()
		return x.enqueue()
	case refused:
		return x.refuse()
	}
	return x.failed()
}

// answered gives the last piece out and decides what becomes of both connections.
func (x *exchange) answered() relay.Outcome {
	x.flush()
	if x.state == relay.ResponseCut && x.ended && !x.silent {
		x.req.caller.Abort() // if they read on after all, they see that it is not whole
		x.silent = true
	}
	whole := x.wholeNow()
	if !whole {
		x.takeRest()
	}
	x.returnChannel()
	if x.short { // a close in order would be the end of the answer to them
		x.req.caller.Abort()
	}
	keep := whole && !x.silent && x.state == relay.ResponseComplete &&
		!x.req.head.Close && !x.final.Close && !x.final.Sloppy && x.final.Framing != relay.FramingClose
	return relay.Outcome{KeepAlive: keep}
}

// wholeNow tells whether the request was whole when its answer ended. The upload
// may have a last word to say, or a write that the local server does not take.
func (x *exchange) wholeNow() bool {
	if x.uploading && x.req.rec.isWhole() {
		if !x.sent.Load() {
			x.line.close()
		}
		x.joined(<-x.up)
	}
	if x.reqEnd.how == whole && !x.acceptedWhole {
		x.amend()
	}
	return x.reqEnd.how == whole || x.acceptedWhole // stored first, and not wanted by the local server
}

func (x *exchange) joined(u ended) { x.uploading, x.reqEnd = false, u }

// takeRest reads the rest of a request that was answered early, for a while, so
// that the event is whole if it can be.
func (x *exchange) takeRest() {
	x.line.close()
	caller := x.req.caller
	if !x.short && (x.final.Framing == relay.FramingClose || x.unsentBody()) {
		_ = caller.CloseWrite()
	}
	if x.uploading {
		late := time.NewTimer(restWait)
		defer late.Stop()
		select {
		case u := <-x.up:
			x.joined(u)
		case <-late.C:
			x.stopUpload()
		case <-x.d.cut:
			x.stopUpload()
		}
	}
	x.amend()
}

// stopUpload ends an upload that may wait for a caller who says nothing.
func (x *exchange) stopUpload() {
	x.enough.Store(true)
	x.req.caller.Abort()
	x.silent = true
	x.joined(<-x.up)
}

// amend stores what became of a request that was accepted before it was whole.
func (x *exchange) amend() {
	state := relay.BodyAborted
	switch {
	case x.reqEnd.how == whole:
		state = relay.BodyComplete
	case x.reqEnd.how == tooLarge:
		state = relay.BodyOverLimit
	case x.unsentBody():
		state = relay.BodyNotSent
	}
	x.req.rec.stop(x.req.body)
	m := x.req.rec.message(x.event.Request.Head, x.req.head.Framing, state)
	x.d.store.Amend(x.event.ID, &m)
}

// failed stores an exchange that got no usable answer, then says so, or breaks an
// answer that had begun.
func (x *exchange) failed() relay.Outcome {
	cut := closed(x.d.cut)
	if x.line != nil {
		x.line.close()
	}
	if !x.accepted {
		x.readRest()
		if x.reqEnd.how != whole {
			return x.refuse()
		}
		x.sendAccept()
	}
	x.finishFailed()
	if err := x.stored(); err != nil {
		x.endWithoutAnswer()
		x.fault, x.state = err, ""
	}
	if x.uploading {
		if x.begun || cut {
			x.stopUpload()
		} else {
			x.readRest()
		}
	}
	if !x.acceptedWhole {
		x.amend()
	}
	if x.state == relay.ResponseTruncated && x.fault.Code != relay.CodeTunnelLost {
		x.flush()
	}
	if x.begun {
		x.req.caller.Abort()
		return relay.Outcome{}
	}
	if x.silent {
		return relay.Outcome{}
	}
	return refusal(x.unkept(x.fault), x.kept())
}

// finishFailed ends the attempt, unless that was tried already.
func (x *exchange) finishFailed() {
	switch {
	case x.finish != nil:
	case x.final != nil && x.storeFault():
		x.noteUnstored()
	default:
		x.sendFinish(x.failedState(), x.fault, "")
	}
}

// storeFault tells whether it is the store that fails.
func (x *exchange) storeFault() bool {
	return x.fault.Code == relay.CodeStoreUnavailable || x.fault.Code == relay.CodeStorageFull
}

// storeAway tells whether the stored request could not be read on because the store was
// away, not because a part of it is missing.
func (x *exchange) storeAway() bool {
	var cause *relay.Error
	return x.reqEnd.how == unread && errors.As(x.fault.Cause, &cause) && cause.Code == relay.CodeStoreUnavailable
}

// kept is the id that goes with an answer: none when the event may not be stored.
func (x *exchange) kept() relay.ID {
	if x.storeFault() {
		return relay.ID{}
	}
	return x.event.ID
}

// failedState is the state of the attempt by what went wrong.
func (x *exchange) failedState() string {
	switch {
	case x.fault.Code == relay.CodeTunnelLost:
		if x.final != nil {
			x.state = relay.ResponseTruncated
		}
		return relay.StateInterrupted
	case x.final != nil && x.state == relay.ResponseTruncated:
		return relay.StateDelivered
	case x.queued && x.storeAway(): // it goes out again
		x.final = nil
		return relay.StateInterrupted
	}
	x.final = nil
	return relay.StateFailed
}

// stored waits for the steps under way; an error says that the caller must not be
// told that they are.
func (x *exchange) stored() *relay.Error {
	if x.fault != nil && x.storeFault() {
		return nil // that is what is said already
	}
	late := time.NewTimer(storeWait)
	defer late.Stop()
	for _, t := range []*relay.Ticket{x.accept, x.finish} {
		if t == nil {
			continue
		}
		select {
		case <-t.Done():
		case <-late.C:
			x.d.doubts(x.st, errNoWord)
			return storeError(errNoWord)
		}
		if err := t.Err(); err != nil {
			x.d.doubts(x.st, err)
			return storeError(err)
		}
	}
	x.d.trusts(x.st)
	return nil
}

// readRest reads a request to its end when no local answer will come, so that the
// event can be replayed. Who waits for 100 Continue gets it from us.
func (x *exchange) readRest() {
	if x.reqEnd.how != open {
		return
	}
	x.continueNow()
	if !x.uploading {
		x.deaf = true
		x.startUpload()
	}
	select {
	case u := <-x.up:
		x.joined(u)
	case <-x.d.cut:
		x.stopUpload()
	}
}

// refuse stores a request that went bad and answers it, if anybody is left.
func (x *exchange) refuse() relay.Outcome {
	why := x.reqEnd.err
	sent := x.ch != nil
	x.leave()
	if x.reqEnd.how == unstored || x.reqEnd.how == queueFull {
		return x.said(refusal(x.unkept(why), relay.ID{}))
	}
	state, body := relay.StateIncomplete, relay.BodyAborted
	switch x.reqEnd.how {
	case malformed:
		state = relay.StateRejected
	case tooLarge:
		body = relay.BodyOverLimit
		if !sent {
			state = relay.StateRejected
		}
	}
	if state == relay.StateRejected {
		if !x.st.mayReject() {
			return x.said(refusal(why, relay.ID{}))
		}
		x.d.noted.rejected.Add(1)
	}
	x.acceptBad(state, body, why, sent)
	if state == relay.StateRejected && !sent { // best effort: nobody waits
		return x.said(refusal(why, relay.ID{}))
	}
	err := x.stored()
	switch {
	case x.reqEnd.how == gone:
		return relay.Outcome{}
	case err != nil:
		return x.said(refusal(x.unkept(err), relay.ID{}))
	}
	return x.said(refusal(why, x.event.ID))
}

// acceptBad stores an event that can never be replayed, with its attempt when bytes
// had gone.
func (x *exchange) acceptBad(state, body string, why *relay.Error, sent bool) {
	if x.unsentBody() {
		body = relay.BodyNotSent
	}
	x.req.rec.stop(x.req.body)
	e := x.event
	x.fillRequest(body)
	if !sent {
		e.State, e.Error = state, faultOf(why)
		e.Blocker = relay.BlockedIncomplete
		if state == relay.StateRejected {
			e.Blocker = relay.BlockedRejected
		}
		x.accepted, x.accept = true, x.d.store.Accept(e)
		return
	}
	e.State = relay.StateDelivering
	a := x.attempt
	a.State = relay.StateDelivering
	e.Attempts, e.AttemptCount = []relay.Attempt{a}, 1
	x.accepted, x.accept = true, x.d.store.Accept(e)
	x.final = nil
	x.sendFinish(relay.StateFailed, why, state)
}

// said drops an answer that nobody is there to read.
func (x *exchange) said(o relay.Outcome) relay.Outcome {
	if x.silent {
		return relay.Outcome{}
	}
	return o
}
