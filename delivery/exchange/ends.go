package exchange

import (
	"errors"
	"time"

	"relay"
	"relay/waits"
)

// giveBack gives the connection back to its tunnel once the response has ended, so that the next request on
// the connection need not wait until this response is stored. It does nothing while the sender is running, or
// if the connection was upgraded.
func (x *run) giveBack() {
	if x.conn == nil || x.answer.state == relay.ResponseUpgraded || x.sending {
		return
	}
	trailers := x.q.body != nil && x.q.body.HasTrailers()
	if limit, ok := x.answer.reusable(trailers, x.out.sink != nil); ok {
		x.conn.Keep(limit, x.q.Head.Framing != relay.FramingNone)
		x.conn = nil
		return
	}
	x.closeConn()
}

func (x *run) closeConn() {
	if x.conn != nil {
		_ = x.conn.Close()
		x.conn = nil
	}
}

// answered writes the last piece of the response and decides whether to keep the caller's connection.
func (x *run) answered() Result {
	o, q := &x.out, x.q
	o.flush()
	if o.sink == nil {
		x.closeConn()
		x.endStoredSender()
		return x.made(nil, true)
	}
	if x.answer.state == relay.ResponseCut && o.reader == readerHalfClosed {
		// The reset tells a caller that still reads that the answer is incomplete.
		o.abort()
	}
	if x.sending && q.rec.isWhole() {
		// The whole request has been read, so the sender is in its last write. If the local server has not taken
		// all of it, closeConn ends the write.
		if !x.send.whole.Load() {
			x.closeConn()
		}
		x.endSender()
	}
	x.noteGone()
	if x.end.how == endWhole && q.accepted != acceptedWhole {
		x.amend()
	}
	// With acceptedWhole the record has the whole request, even if the local server did not read all of it.
	whole := x.end.how == endWhole || q.accepted == acceptedWhole
	if !whole {
		// The local server answered early. The rest of the request is read for a while, so that the event can
		// become complete.
		x.closeConn()
		if o.reader != readerCut && (o.closes || q.bodyNotSent()) {
			_ = o.sink.CloseWrite()
		}
		enough, stop := waits.After(earlyAnswerWait)
		x.awaitSender(enough)
		stop()
		x.amend()
	}
	x.giveBack()
	if o.reader == readerCut {
		// An orderly close would look like the end of the answer.
		o.sink.Abort()
	}
	f := x.answer.final
	r := x.made(nil, true)
	r.KeepOpen = whole && o.reads() && x.answer.state == relay.ResponseComplete && !q.Head.Close && !f.Close && !f.Sloppy && !o.closes
	return r
}

// failed stores an exchange without a usable response. If a part of a response was sent, it resets the
// caller's connection.
func (x *run) failed() Result {
	cut := x.q.o.Cut.Err() != nil
	// This frees the slot of the request on the tunnel, because the caller may take hours to send the rest of
	// the request.
	x.closeConn()
	x.endStoredSender()
	if !x.q.Accepted() {
		if x.fault.Code != relay.CodeInternal && x.answer.state != relay.ResponseTruncated {
			x.readToEnd()
			if x.end.how != endWhole {
				return x.refuse()
			}
		}
		x.sendAccept()
	}
	if err := x.finishFailed(); err != nil {
		x.fault, x.answer.state = err, ""
	}
	if x.sending {
		if x.out.started || cut {
			x.stopSender()
		} else {
			x.readToEnd()
		}
	}
	if x.q.accepted != acceptedWhole {
		x.amend()
	}
	if x.out.sink == nil {
		return x.made(x.fault, true)
	}
	if x.answer.state == relay.ResponseTruncated && (x.out.started || x.fault.Code == relay.CodeLocalClosed) {
		// The response was cut off: this sends the caller the part that was held back. If the condition is
		// false, a caller that has got no byte yet gets an error response instead.
		x.out.flush()
	}
	switch {
	case x.out.started, x.fault.Code == relay.CodeInternal:
		x.noteGone()
		x.out.sink.Abort()
		return x.made(nil, true)
	case x.isStoreFault():
		// It is not known whether the event is stored, so the caller must not be told that it is.
		return x.made(x.fault, false)
	case x.out.reader >= readerLeft:
		x.noteGone()
	}
	return x.made(x.fault, true)
}

// finishFailed ends the attempt, unless that was done before, and waits until all is stored. If the end
// cannot be stored with its response, because a part of the response may be missing in the store,
// finishFailed stores the end without the response. Otherwise the attempt would stay in the state delivering.
func (x *run) finishFailed() *relay.Error {
	switch {
	case x.finish != nil:
	case x.answer.final != nil && x.isStoreFault():
		x.recordUnstored()
	default:
		x.sendFinish(x.failedState(), x.fault, "")
	}
	err := x.awaitStored()
	if err != nil && x.answer.final != nil && x.finish != nil && closed(x.finish.Done()) && x.finish.Err() != nil {
		x.recordUnstored()
	}
	return err
}

// failedState returns the state of a failed attempt.
func (x *run) failedState() string {
	var cause *relay.Error
	a := &x.answer
	switch {
	case x.fault.Code == relay.CodeTunnelLost:
		if a.final != nil {
			a.state = relay.ResponseTruncated
		}
		return relay.StateInterrupted
	case x.fault.Code == relay.CodeInternal:
		a.final = nil
		return relay.StateInterrupted
	case a.final != nil && a.state == relay.ResponseTruncated:
		return relay.StateDelivered
	case x.q.Queued && x.end.how == endUnreadable && errors.As(x.fault.Cause, &cause) && (cause.Code == relay.CodeStoreUnavailable || cause.Code == relay.CodeOverloaded):
		// The store was unavailable or busy when the request was to be read. Unlike a failed delivery from the
		// queue, an interrupted one is queued again.
		a.final = nil
		return relay.StateInterrupted
	}
	a.final = nil
	return relay.StateFailed
}

// refuse stores a request that did not arrive completely or correctly. Its event can never be
// replayed; it has an attempt if bytes were already sent to the local server.
func (x *run) refuse() Result {
	q, why := x.q, x.end.err
	sent := !x.at.open.IsZero()
	x.closeConn()
	state, body, blocker := relay.StateIncomplete, relay.BodyAborted, relay.BlockedIncomplete
	switch x.end.how {
	case endUnstored, endQueueFull:
		return x.made(why, false)
	case endMalformed:
		state, blocker = relay.StateRejected, relay.BlockedRejected
	case endTooLarge:
		body = relay.BodyOverLimit
		if !sent {
			state, blocker = relay.StateRejected, relay.BlockedRejected
		}
	}
	if state == relay.StateRejected && !q.o.KeepRejected(q.Event.AliasID) {
		return x.made(why, false)
	}
	if q.bodyNotSent() {
		body = relay.BodyNotSent
	}
	q.rec.stop(q.body)
	q.fill(body)
	if sent {
		q.addAttempt(relay.StateDelivering)
	} else {
		q.Event.State, q.Event.Error, q.Event.Blocker = state, asFault(why), blocker
	}
	q.accepted, x.accept = acceptedPart, x.journal.Accept(q.Event)
	switch {
	case sent:
		x.answer.final = nil
		x.sendFinish(relay.StateFailed, why, state)
	case state == relay.StateRejected:
		// Nothing waits for the ticket: whether the event is stored does not change the answer.
		return x.made(why, false)
	}
	err := x.awaitStored()
	switch {
	case x.end.how == endLeft:
		return x.made(nil, err == nil)
	case err != nil:
		return x.made(err, false)
	}
	return x.made(why, true)
}

func errPanic() *relay.Error {
	return relay.Errorf(relay.CodeInternal, "the relay failed while it served this request; its log has the reason")
}

func (o *Options) logPanic(q *Request, v any, stack []byte) {
	o.Log.Error("panic while a request was served", "event", q.Event.ID, "attempt", q.Attempt.N, "panic", v, "stack", string(stack))
}

// panicked ends an exchange whose goroutine has panicked: it resets the caller's connection and marks the
// attempt as interrupted. If the attempt cannot be marked, the store ends it, as it does for every claim
// without a running exchange.
func (x *run) panicked(v any, stack []byte) Result {
	x.q.o.logPanic(x.q, v, stack)
	defer func() { _ = recover() }()
	x.out.held = nil
	x.out.abort()
	x.closeConn()
	x.fault = errPanic()
	x.send.stop.Store(true)
	x.send.signalProceed(false)
	if x.sending {
		select {
		case u := <-x.send.done:
			x.join(u)
		case <-time.After(partWait):
			// The goroutine of the sender may be waiting for the store, so it is left running.
		}
	}
	if !x.q.Accepted() {
		x.sendAccept()
	}
	if x.finish == nil {
		a := x.q.Attempt
		a.State, a.EndedAt, a.Error = relay.StateInterrupted, time.Now(), asFault(x.fault)
		x.finish = x.journal.Finish(x.q.Event.ID, &a, "")
	}
	if x.q.accepted != acceptedWhole && !x.sending {
		x.amend()
	}
	return Result{Panicked: true, Left: true}
}
