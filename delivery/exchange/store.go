package exchange

import (
	"cmp"
	"errors"
	"time"

	"relay"
	"relay/record"
	"relay/waits"
)

// store passes the end of the response to the journal and waits until all is stored.
func (x *run) store() error {
	x.at.end = time.Now()
	x.amendWhole()
	x.sendFinish(relay.StateDelivered, nil, "")
	x.giveBack()
	x.setTimer(x.at.end.Add(storeWait))
	// Either step may be refused for lack of space while the other one has found space and is pending.
	if x.accept != nil {
		switch {
		case !x.resolves(x.accept):
			return x.storeLate()
		case !closed(x.accept.Done()):
			return x.onFinish() // Finish has failed
		}
		if err := x.onAccept(); err != nil {
			return err
		}
	}
	if !x.resolves(x.finish) {
		return x.storeLate()
	}
	return x.onFinish()
}

// sendAccept asks the journal to accept the event, with the part of its request that has arrived.
func (x *run) sendAccept() {
	x.q.Prepare(relay.StateDelivering)
	x.accept = x.journal.Accept(x.q.Event)
}

// sendFinish asks the journal to end the attempt, and to accept the event if that was not done yet.
// The parameter event is the state of the event if it differs from the state of the attempt, else empty.
// sendFinish prepares both steps before it passes on the first one, because the store commits a waiting step
// at once: with a pause in between it would commit the first step alone.
func (x *run) sendFinish(state string, why *relay.Error, event string) {
	first := !x.q.Accepted()
	if first {
		x.q.Prepare(relay.StateDelivering)
	}
	x.setEnd(state, why)
	if first {
		x.accept = x.journal.Accept(x.q.Event)
	}
	x.finish = x.journal.Finish(x.q.Event.ID, x.attempt, event)
}

// resolves waits until a step of the store has resolved, or Finish has failed. It returns false if the timer ends
// the wait, or the relay stops.
func (x *run) resolves(t *relay.Ticket) bool {
	for !closed(t.Done()) {
		select {
		case <-t.Done():
		case <-unlessStored(x.finish):
			if x.finish.Err() != nil {
				return true
			}
		case u := <-x.send.done:
			x.joinOn(u)
		case <-x.timer.C:
			if x.catchUp(time.Now()) {
				x.setTimer(x.due.resumed)
				continue
			}
			return closed(t.Done())
		case <-x.q.o.Base.Done():
			return closed(t.Done())
		}
	}
	return true
}

func (x *run) onAccept() error {
	err := cmp.Or(x.accept.Err(), x.q.rec.partsError())
	x.accept = nil
	if err != nil {
		x.storeErr = err
		return x.fail(StoreError(err))
	}
	return nil
}

func (x *run) onFinish() error {
	if err := cmp.Or(x.finish.Err(), x.answer.rec.partsError()); err != nil {
		x.storeErr = err
		x.recordUnstored()
		return x.fail(StoreError(err))
	}
	x.recorded = true
	return nil
}

var errResponseNotStored = relay.Errorf(relay.CodeResponseNotStored,
	"the local server answered, but its answer could not be stored in time, so the caller did not get it whole")

// storeLate ends an exchange whose steps the store has neither stored nor refused in time.
func (x *run) storeLate() error {
	x.storeErr = ErrStoreTimeout
	if x.answer.state != "" && x.out.sink != nil {
		// The store may still store the event, but the caller is told that it is not stored.
		x.setEnd(relay.StateDelivered, errResponseNotStored)
		x.journal.Finish(x.q.Event.ID, x.attempt, "")
	}
	return x.fail(StoreError(ErrStoreTimeout))
}

// recordUnstored ends the attempt without its response, with an error that says that the response
// could not be stored.
func (x *run) recordUnstored() {
	a := x.attemptSoFar()
	a.State, a.EndedAt, a.Error = relay.StateDelivered, x.at.end, asFault(errResponseNotStored)
	if x.fault != nil && x.fault.Code == relay.CodeTunnelLost {
		a.State, a.Error = relay.StateInterrupted, asFault(x.fault)
	}
	a.HasResponse, a.Status, a.ResponseState, a.Response, a.Interim = false, 0, "", relay.Message{}, nil
	x.recordSent(&a)
	x.journal.Finish(x.q.Event.ID, &a, "")
}

// awaitStored waits until accept and finish are durable. After an error the caller must not be told
// that the event is stored.
func (x *run) awaitStored() *relay.Error {
	if x.fault != nil && x.isStoreFault() {
		// The answer to the caller already says that the event is not stored.
		return nil
	}
	if err := x.q.o.Await(x.accept, x.finish); err != nil {
		x.storeErr = err
		return StoreError(err)
	}
	x.recorded = true
	return nil
}

// isStoreFault reports whether the exchange failed because something cannot be stored. That includes a
// response that has begun and finds no buffer space, because it cannot be recorded to its end.
func (x *run) isStoreFault() bool {
	return x.fault.Code == relay.CodeStoreUnavailable || x.fault.Code == relay.CodeStorageFull ||
		x.fault.Code == relay.CodeOverloaded && (x.out.started || x.answer.final != nil && x.out.sink == nil)
}

// amendWhole stores the complete request if it was completed after its event was accepted. It does so
// before the attempt ends, so that a caller with a complete response finds a complete request in the
// record.
func (x *run) amendWhole() {
	if x.q.accepted != acceptedPart {
		return
	}
	x.joinSender()
	if x.end.how == endWhole {
		x.amend()
		x.q.accepted = acceptedWhole
	}
}

// amend stores the rest of a request whose event was accepted before the request was complete.
func (x *run) amend() {
	q, state := x.q, relay.BodyAborted
	switch {
	case x.end.how == endWhole:
		state = relay.BodyComplete
	case x.end.how == endTooLarge:
		state = relay.BodyOverLimit
	case q.bodyNotSent():
		state = relay.BodyNotSent
	}
	q.rec.stop(q.body)
	e := *q.Event // the journal has the event itself, which therefore stays as it is
	e.Request = q.rec.message(e.Request.Head, q.Head.Framing, state)
	record.ReadBody(&e, q.o.Site, q.Secrets)
	x.journal.Amend(&e)
}

// ErrStoreTimeout means that a step was neither stored nor refused in time.
var ErrStoreTimeout = errors.New("the store did not answer in time")

// StoreError returns the error for a caller after a failed step of the store.
func StoreError(err error) *relay.Error {
	var e *relay.Error
	if errors.As(err, &e) && (e.Code == relay.CodeStorageFull || e.Code == relay.CodeQueueFull || e.Code == relay.CodeOverloaded) {
		c := *e
		c.RetryAfter, c.Cause = cmp.Or(c.RetryAfter, retryAfter), err
		return &c
	}
	return &relay.Error{
		Code:       relay.CodeStoreUnavailable,
		Detail:     "the relay cannot store this at the moment; try again",
		RetryAfter: retryAfter,
		Cause:      err,
	}
}

// Await waits until steps of the store have resolved, in the order in which they were passed on. It skips nil
// steps. It returns the error of the first step that has failed, and ErrStoreTimeout after storeWait, or when
// Base ends. If the last step fails while an earlier one is pending, Await returns its error at once.
func (o *Options) Await(steps ...*relay.Ticket) error {
	late, stop := waits.After(storeWait)
	defer stop()
	return o.await(late, steps...)
}

// AwaitEnd waits as Await does, but without the bound of storeWait.
func (o *Options) AwaitEnd(t *relay.Ticket) error { return o.await(nil, t) }

func (o *Options) await(late <-chan struct{}, steps ...*relay.Ticket) error {
	last := steps[len(steps)-1]
	for _, t := range steps {
		for t != nil && !closed(t.Done()) {
			timedOut := false
			select {
			case <-t.Done():
			case <-unlessStored(last):
				if err := last.Err(); err != nil {
					return err
				}
			case <-late:
				timedOut = true
			case <-o.Base.Done():
				timedOut = true
			}
			if timedOut && !closed(t.Done()) {
				return ErrStoreTimeout
			}
		}
		if t != nil && t.Err() != nil {
			return t.Err()
		}
	}
	return nil
}

// unlessStored returns the Done channel of a step that has not resolved, or has failed; nil for a step that is stored.
func unlessStored(t *relay.Ticket) <-chan struct{} {
	if t == nil || closed(t.Done()) && t.Err() == nil {
		return nil
	}
	return t.Done()
}
