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
	if x.state == relay.ResponseCut && x.callerState == callerHalfClosed {
		x.caller.Abort() // a caller that still reads sees that the answer is not whole
		x.callerState = callerGone
	}
	if x.uploading && x.rec.isWhole() { // its last write is returning
		if !x.allWritten.Load() {
			x.pooled.Close()
		}
		x.endUpload()
	}
	x.noteGone()
	if x.reqEnd.how == whole && x.accepted != acceptedWhole {
		x.amend()
	}
	whole := x.reqEnd.how == whole || x.accepted == acceptedWhole // or it was stored first, and the local server did not read it
	if !whole {                                                   // it was answered early: the rest is read for a while, so that the event is whole if it can be
		x.pooled.Close()
		x.releaseSlot()
		if x.callerState != callerPartial && (x.final.Framing == relay.FramingClose || x.bodyNotSent()) {
			_ = x.caller.CloseWrite()
		}
		if x.uploading {
			x.awaitUpload(time.After(earlyAnswerWait))
		}
		x.amend()
	}
	x.returnChannel()
	if x.callerState == callerPartial { // an orderly close would look like the end of the answer
		x.caller.Abort()
	}
	keep := whole && x.callerState < callerGone && x.state == relay.ResponseComplete &&
		!x.head.Close && !x.final.Close && !x.final.Sloppy && x.final.Framing != relay.FramingClose
	return relay.Outcome{KeepAlive: keep}
}

// failed stores an exchange without a usable answer. After that it returns the error for
// the caller, or resets the connection if an answer had begun.
func (x *exchange) failed() relay.Outcome {
	cut := closed(x.d.cut)
	x.pooled.Close()
	x.releaseSlot() // the rest of the request may take its caller hours
	if x.accepted == notAccepted {
		x.readToEnd()
		if x.reqEnd.how != whole {
			return x.refuse()
		}
		x.sendAccept()
	}
	if err := x.finishFailed(); err != nil {
		x.fault, x.state = err, ""
	}
	if x.uploading {
		if x.responseStarted || cut {
			x.stopUpload()
		} else {
			x.readToEnd()
		}
	}
	if x.accepted != acceptedWhole {
		x.amend()
	}
	if x.state == relay.ResponseTruncated && x.fault.Code != relay.CodeTunnelLost {
		x.flush()
	}
	if x.responseStarted {
		x.noteGone()
		x.caller.Abort()
		return relay.Outcome{}
	}
	if x.isStoreFault() { // the event may not have been stored
		return x.refusal(x.fault, relay.ID{})
	}
	out := x.refusal(x.fault, x.event.ID)
	if out.Answer == nil {
		x.noteGone()
	} else if d, ref := x.d, x.ref(); !x.gone {
		out.Gone = func() { d.store.CallerGone(ref.Event, ref.N) }
	}
	return out
}

// finishFailed ends the attempt, unless that was done before, and waits until all is stored.
// An end that cannot be stored because of its answer, of which a part may be missing, is
// stored without the answer. Without that, the attempt would stay in the state delivering.
func (x *exchange) finishFailed() *relay.Error {
	switch {
	case x.finish != nil:
	case x.final != nil && x.isStoreFault():
		x.recordUnstored()
	default:
		x.sendFinish(x.failedState(), x.fault, "")
	}
	err := x.awaitStored()
	if err != nil && x.final != nil && x.finish != nil && closed(x.finish.Done()) && x.finish.Err() != nil {
		x.recordUnstored()
	}
	return err
}

// isStoreFault reports whether the exchange failed because something cannot be stored. An
// answer that has begun and finds no buffer space cannot be recorded to its end.
func (x *exchange) isStoreFault() bool {
	return x.fault.Code == relay.CodeStoreUnavailable || x.fault.Code == relay.CodeStorageFull ||
		x.fault.Code == relay.CodeOverloaded && (x.responseStarted || x.begun && x.caller == nil)
}

// failedState returns the state of a failed attempt.
func (x *exchange) failedState() string {
	var cause *relay.Error
	switch {
	case x.fault.Code == relay.CodeTunnelLost:
		if x.final != nil {
			x.state = relay.ResponseTruncated
		}
		return relay.StateInterrupted
	case x.final != nil && x.state == relay.ResponseTruncated:
		return relay.StateDelivered
	case x.queued && x.reqEnd.how == unread && errors.As(x.fault.Cause, &cause) && cause.Code == relay.CodeStoreUnavailable:
		x.final = nil // the store was away, no part of the request is missing: it goes out again
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
	late := time.After(storeWait)
	for _, t := range []*relay.Ticket{x.accept, x.finish} {
		if t == nil {
			continue
		}
		if err := x.d.await(t, late); err != nil {
			x.d.markStoreDegraded(x.st, err)
			return storeError(err)
		}
	}
	x.d.markStoreHealthy(x.st)
	return nil
}

// refuse stores a request that ended badly and answers it, if the caller is still
// connected. Its event can never be replayed; it has an attempt when bytes had gone.
func (x *exchange) refuse() relay.Outcome {
	why := x.reqEnd.err
	sent := x.ch != nil
	x.releaseChannel()
	state, body, blocker := relay.StateIncomplete, relay.BodyAborted, relay.BlockedIncomplete
	switch x.reqEnd.how {
	case unstored, queueFull:
		return x.refusal(why, relay.ID{})
	case malformed:
		state, blocker = relay.StateRejected, relay.BlockedRejected
	case tooLarge:
		body = relay.BodyOverLimit
		if !sent {
			state, blocker = relay.StateRejected, relay.BlockedRejected
		}
	}
	if state == relay.StateRejected {
		if !x.d.mayReject(x.st) {
			return x.refusal(why, relay.ID{})
		}
		x.d.counters.rejected.Inc()
	}
	if x.bodyNotSent() {
		body = relay.BodyNotSent
	}
	x.rec.stop(x.body)
	x.fillRequest(body)
	if sent {
		x.addAttempt(x.attempt, relay.StateDelivering)
	} else {
		x.event.State, x.event.Error, x.event.Blocker = state, asFault(why), blocker
	}
	x.accepted, x.accept = acceptedPart, x.d.store.Accept(x.event)
	switch {
	case sent:
		x.final = nil
		x.sendFinish(relay.StateFailed, why, state)
	case state == relay.StateRejected: // best effort: nobody waits
		return x.refusal(why, relay.ID{})
	}
	err := x.awaitStored()
	switch {
	case x.reqEnd.how == gone:
		return relay.Outcome{}
	case err != nil:
		return x.refusal(err, relay.ID{})
	}
	return x.refusal(why, x.event.ID)
}

// refusal returns the answer to a caller whose request failed; nothing if the caller has
// gone. Codes such as storage-full promise that nothing was forwarded, so they become
// store-unavailable once a byte was.
func (x *exchange) refusal(e *relay.Error, id relay.ID) relay.Outcome {
	if (e.Code == relay.CodeStorageFull || e.Code == relay.CodeQueueFull) && x.ch != nil && x.reached {
		c := *e
		c.Code = relay.CodeStoreUnavailable
		c.Detail = "the request, or a part of it, went out to the local server, but the relay has no room left to keep it"
		e = &c
	}
	return x.ifCallerPresent(refusal(e, id))
}

// ifCallerPresent drops the answer if the caller has gone.
func (x *exchange) ifCallerPresent(o relay.Outcome) relay.Outcome {
	if x.callerState >= callerGone {
		return relay.Outcome{}
	}
	return o
}
