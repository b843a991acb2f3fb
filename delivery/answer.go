package delivery

import (
	"errors"
	"time"

	"relay"
)

// finishInbound returns the outcome for the caller after the exchange has ended with v.
func (x *exchange) finishInbound(v verdict) relay.Outcome {
	switch v {
	case complete:
		return x.answered()
	case upgraded:
		return x.splice()
	case notSent:
		x.releaseChannel()
		return x.enqueue()
	case refused:
		return x.refuse()
	}
	return x.failed()
}

// answered writes the last piece of the answer and decides whether to keep the caller's
// connection and the channel.
func (x *exchange) answered() relay.Outcome {
	x.flush()
	if x.state == relay.ResponseCut && x.callerHalfClosed && !x.callerGone {
		x.req.caller.Abort() // a caller that still reads sees that the answer is not whole
		x.callerGone = true
	}
	whole := x.joinUpload()
	if !whole {
		x.readAfterAnswer()
	}
	x.returnChannel()
	if x.partialWrite { // an orderly close would look like the end of the answer
		x.req.caller.Abort()
	}
	keep := whole && !x.callerGone && x.state == relay.ResponseComplete &&
		!x.req.head.Close && !x.final.Close && !x.final.Sloppy && x.final.Framing != relay.FramingClose
	return relay.Outcome{KeepAlive: keep}
}

// joinUpload waits for an upload whose last write is returning, and reports whether the
// request was whole when its answer ended.
func (x *exchange) joinUpload() bool {
	if x.uploading && x.req.rec.isWhole() {
		if !x.allWritten.Load() {
			x.pooled.Close()
		}
		x.uploadEnded(<-x.uploadDone)
	}
	if x.reqEnd.how == whole && !x.acceptedWhole {
		x.amend()
	}
	return x.reqEnd.how == whole || x.acceptedWhole // or it was stored first, and the local server did not read it
}

// uploadEnded takes the result of the upload, whose goroutine has ended.
func (x *exchange) uploadEnded(u uploadResult) {
	x.uploading, x.reqEnd = false, u
	if u.panicked != nil {
		panic(u.panicked)
	}
}

// readAfterAnswer reads the rest of a request that was answered early, for a while, so
// that the event is whole if it can be.
func (x *exchange) readAfterAnswer() {
	x.pooled.Close()
	caller := x.req.caller
	if !x.partialWrite && (x.final.Framing == relay.FramingClose || x.bodyNotSent()) {
		_ = caller.CloseWrite()
	}
	if x.uploading {
		late := time.NewTimer(earlyAnswerWait)
		defer late.Stop()
		select {
		case u := <-x.uploadDone:
			x.uploadEnded(u)
		case <-late.C:
			x.stopUpload()
		case <-x.d.cut:
			x.stopUpload()
		}
	}
	x.amend()
}

// stopUpload ends an upload that may be waiting for a silent caller.
func (x *exchange) stopUpload() {
	x.stopReading.Store(true)
	x.req.caller.Abort()
	x.callerGone = true
	x.uploadEnded(<-x.uploadDone)
}

// amendWhole stores a request that became whole after its event was accepted, before its
// attempt ends: when the caller has the whole answer, the record has the whole request.
func (x *exchange) amendWhole() {
	if x.acceptedWhole || !x.req.rec.isWhole() {
		return
	}
	x.awaitLastWrite()
	if x.uploading && x.allWritten.Load() {
		x.onUpload(<-x.uploadDone)
	}
	if x.reqEnd.how == whole {
		x.amend()
		x.acceptedWhole = true
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
	x.req.rec.stop(x.req.body)
	m := x.req.rec.message(x.event.Request.Head, x.req.head.Framing, state)
	x.d.store.Amend(x.event.ID, &m)
}

// failed stores an exchange without a usable answer. After that it returns the error for
// the caller, or resets the connection if an answer had begun.
func (x *exchange) failed() relay.Outcome {
	cut := closed(x.d.cut)
	if x.pooled != nil {
		x.pooled.Close()
	}
	if !x.accepted {
		x.readToEnd()
		if x.reqEnd.how != whole {
			return x.refuse()
		}
		x.sendAccept()
	}
	x.finishFailed()
	if err := x.awaitStored(); err != nil {
		x.recordIfUnstored()
		x.fault, x.state = err, ""
	}
	if x.uploading {
		if x.responseStarted || cut {
			x.stopUpload()
		} else {
			x.readToEnd()
		}
	}
	if !x.acceptedWhole {
		x.amend()
	}
	if x.state == relay.ResponseTruncated && x.fault.Code != relay.CodeTunnelLost {
		x.flush()
	}
	if x.responseStarted {
		x.req.caller.Abort()
		return relay.Outcome{}
	}
	if x.callerGone {
		return relay.Outcome{}
	}
	return refusal(x.storeError(x.fault), x.eventID())
}

// finishFailed asks the store to end the attempt, unless that was done before.
func (x *exchange) finishFailed() {
	switch {
	case x.finish != nil:
	case x.final != nil && x.isStoreFault():
		x.recordUnstored()
	default:
		x.sendFinish(x.failedState(), x.fault, "")
	}
}

// isStoreFault reports whether the store is why the exchange failed.
func (x *exchange) isStoreFault() bool {
	return x.fault.Code == relay.CodeStoreUnavailable || x.fault.Code == relay.CodeStorageFull
}

// isStoreAway reports whether the stored request could not be read because the store was
// unavailable, not because a part of the request is missing.
func (x *exchange) isStoreAway() bool {
	var cause *relay.Error
	return x.reqEnd.how == unread && errors.As(x.fault.Cause, &cause) && cause.Code == relay.CodeStoreUnavailable
}

// eventID returns the id for the answer: none when the event may not have been stored.
func (x *exchange) eventID() relay.ID {
	if x.isStoreFault() {
		return relay.ID{}
	}
	return x.event.ID
}

// failedState returns the state of a failed attempt.
func (x *exchange) failedState() string {
	switch {
	case x.fault.Code == relay.CodeTunnelLost:
		if x.final != nil {
			x.state = relay.ResponseTruncated
		}
		return relay.StateInterrupted
	case x.final != nil && x.state == relay.ResponseTruncated:
		return relay.StateDelivered
	case x.queued && x.isStoreAway(): // it goes out again
		x.final = nil
		return relay.StateInterrupted
	}
	x.final = nil
	return relay.StateFailed
}

// awaitStored waits until accept and finish are durable. After an error the caller must
// not be told that the event is stored.
func (x *exchange) awaitStored() *relay.Error {
	if x.fault != nil && x.isStoreFault() {
		return nil // the answer says already that the event is not stored
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
			x.d.markStoreDegraded(x.st, errStoreTimeout)
			return storeError(errStoreTimeout)
		}
		if err := t.Err(); err != nil {
			x.d.markStoreDegraded(x.st, err)
			return storeError(err)
		}
	}
	x.d.markStoreHealthy(x.st)
	return nil
}

// readToEnd reads the request to its end when no local answer will come, so that the
// event can be replayed. A caller that waits for 100 Continue gets it from the relay.
func (x *exchange) readToEnd() {
	if x.reqEnd.how != open {
		return
	}
	x.send100()
	if !x.uploading {
		x.writeFailed = true
		x.startUpload()
	}
	select {
	case u := <-x.uploadDone:
		x.uploadEnded(u)
	case <-x.d.cut:
		x.stopUpload()
	}
}

// refuse stores a request that ended badly and answers it, if the caller is still
// connected.
func (x *exchange) refuse() relay.Outcome {
	why := x.reqEnd.err
	sent := x.ch != nil
	x.releaseChannel()
	if x.reqEnd.how == unstored || x.reqEnd.how == queueFull {
		return x.ifCallerPresent(refusal(x.storeError(why), relay.ID{}))
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
			return x.ifCallerPresent(refusal(why, relay.ID{}))
		}
		x.d.counters.rejected.Inc()
	}
	x.acceptRefused(state, body, why, sent)
	if state == relay.StateRejected && !sent { // best effort: nobody waits
		return x.ifCallerPresent(refusal(why, relay.ID{}))
	}
	err := x.awaitStored()
	switch {
	case x.reqEnd.how == gone:
		return relay.Outcome{}
	case err != nil:
		return x.ifCallerPresent(refusal(x.storeError(err), relay.ID{}))
	}
	return x.ifCallerPresent(refusal(why, x.event.ID))
}

// acceptRefused stores an event that can never be replayed, with its attempt when bytes
// had gone.
func (x *exchange) acceptRefused(state, body string, why *relay.Error, sent bool) {
	if x.bodyNotSent() {
		body = relay.BodyNotSent
	}
	x.req.rec.stop(x.req.body)
	e := x.event
	x.fillRequest(body)
	if !sent {
		e.State, e.Error = state, asFault(why)
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

// ifCallerPresent drops the answer if the caller has gone.
func (x *exchange) ifCallerPresent(o relay.Outcome) relay.Outcome {
	if x.callerGone {
		return relay.Outcome{}
	}
	return o
}
