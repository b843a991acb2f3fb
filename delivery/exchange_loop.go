package delivery

import (
	"errors"
	"io"
	"time"

	"relay"
	"relay/delivery/pool"
)

// arm sets the timer to the next time limit or check of the exchange.
func (x *exchange) arm() {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	switch w := x.at.whole; {
	case x.done:
		sooner(x.at.end.Add(storeWait))
	case x.final != nil:
		sooner(x.cutAt)
		sooner(x.checkCallerAt)
	case w.IsZero():
		sooner(x.checkUploadAt)
		sooner(x.continueBy)
	default:
		if !x.accepted {
			sooner(w.Add(acceptDelay))
		}
		if !x.slow && x.at.first.IsZero() && !x.att.lazy {
			sooner(w.Add(pool.SlowAfter))
		}
		if x.responseTimeout > 0 {
			sooner(w.Add(x.responseTimeout))
		}
	}
	if next.Equal(x.armed) {
		return
	}
	x.armed = next
	if next.IsZero() {
		x.timer.Stop()
		return
	}
	x.timer.Reset(time.Until(next))
}

// onTime handles the time limits and checks that are due.
func (x *exchange) onTime(now time.Time) verdict {
	x.armed = time.Time{}
	since := now.Sub(x.at.whole)
	switch {
	case x.done:
		return x.fail(storeError(errStoreTimeout))
	case x.final != nil:
		if !x.cutAt.IsZero() && !now.Before(x.cutAt) {
			x.cutShort()
		} else if !x.checkCallerAt.IsZero() && !now.Before(x.checkCallerAt) {
			x.checkCaller(now)
		}
		return goOn
	case x.at.whole.IsZero():
		return x.onSilence(now)
	}
	x.acceptDue = since >= acceptDelay
	if since >= pool.SlowAfter && x.at.first.IsZero() {
		x.becomeSlow()
	}
	if x.responseTimeout > 0 && since >= x.responseTimeout {
		return x.fail(errNoAnswer(x.responseTimeout))
	}
	return goOn
}

// cutShort ends an answer that is not read by anyone and has reached its time limit.
func (x *exchange) cutShort() {
	x.done, x.trailingBytes, x.state = true, true, relay.ResponseCut
}

// overBudget ends an answer that its caller takes too slowly while the buffer space is
// used up: the record says cut, and the caller sees a broken transfer.
func (x *exchange) overBudget() verdict {
	if x.final == nil {
		return x.fail(relay.Errorf(relay.CodeOverloaded, "the local server's answer found no buffer space; try again in a moment"))
	}
	x.cutShort()
	x.partialWrite = true
	return goOn
}

func (x *exchange) onUpload(u uploadResult) verdict {
	x.uploadEnded(u)
	switch {
	case u.how == whole:
		x.at.whole = u.at
		return goOn
	case x.final != nil:
		return goOn
	case u.how == unread, u.how == unstored:
		return x.fail(u.err)
	}
	return refused
}

func (x *exchange) onAccept() verdict {
	err := x.accept.Err()
	x.accept = nil
	if err == nil {
		err = x.req.rec.partsError()
	}
	if err != nil {
		x.d.markStoreDegraded(x.st, err)
		return x.fail(storeError(err))
	}
	x.d.markStoreHealthy(x.st)
	x.durable = true
	return goOn
}

func (x *exchange) onFinish() verdict {
	err := x.finish.Err()
	if x.accept != nil && closed(x.accept.Done()) {
		if v := x.onAccept(); v != goOn {
			return v // the reason why Finish failed, too
		}
	}
	if err == nil {
		err = x.res.partsError()
	}
	if err != nil {
		x.d.markStoreDegraded(x.st, err)
		x.recordUnstored()
		return x.fail(storeError(err))
	}
	if x.state == relay.ResponseUpgraded && x.req.caller != nil {
		return upgraded
	}
	return complete
}

// onLost fails the exchange, unless bytes of the answer have already arrived.
func (x *exchange) onLost() verdict {
	select {
	case f := <-x.pooled.Reads():
		return x.onFill(f)
	default:
		return x.fail(x.tunnelLost())
	}
}

// tunnelLost returns the error of an exchange whose tunnel went away.
func (x *exchange) tunnelLost() *relay.Error {
	if x.final != nil {
		return relay.Errorf(relay.CodeTunnelLost, "the tunnel went away inside the local server's answer; it has run, but its answer is not whole")
	}
	return errTunnelLost()
}

// stopped is the error of an exchange that was cut because the drain of the relay is over.
func (x *exchange) stopped() *relay.Error {
	if x.final != nil {
		return relay.Errorf(relay.CodeTunnelLost, "the relay stopped inside the local server's answer; it has run, but its answer is not whole")
	}
	return relay.Errorf(relay.CodeTunnelLost, "the relay stopped before the local server had answered; it is not known what became of the request")
}

func errTunnelLost() *relay.Error {
	return relay.Errorf(relay.CodeTunnelLost, "the tunnel went away before the local server had answered; it is not known what became of the request")
}

// onFill takes what the local server sent.
func (x *exchange) onFill(f relay.Fill) verdict {
	x.pooled.ReadDone()
	if f.N > 0 {
		if x.at.first.IsZero() {
			x.at.first = time.Now()
			x.endSlow()
			x.att.pool.NoteAnswer(x.kept, x.reused)
			x.answeredEarly = !x.allWritten.Load()
		}
		if v := x.onBytes(x.pooled.Bytes(f)); v != goOn {
			return v
		}
	}
	switch {
	case f.Err == nil:
		return goOn
	case x.done:
		x.trailingBytes = true
		return goOn
	}
	return x.onChannelEnd(f.Err)
}

// onChannelEnd decides what the end of the local server's side means.
func (x *exchange) onChannelEnd(err error) verdict {
	if errors.Is(err, relay.ErrOverBudget) {
		return x.overBudget()
	}
	orderly := errors.Is(err, io.EOF)
	if orderly && x.body != nil && x.body.EOF() == nil {
		x.done, x.trailingBytes, x.state = true, true, relay.ResponseComplete
		return goOn
	}
	if orderly && x.at.first.IsZero() {
		if x.reused {
			x.att.pool.DisableReuse()
		}
		if why := x.ch.Refusal(refusalWait); why != nil {
			x.reached = false
			return x.fail(openError(why))
		}
	}
	lost := !orderly && !errors.Is(err, io.ErrUnexpectedEOF)
	if lost && (x.att.remote != nil || x.isDetached()) || x.awaitLost() {
		return x.fail(x.tunnelLost())
	}
	switch {
	case x.final != nil:
		x.state = relay.ResponseTruncated
		return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server broke off inside its answer"))
	case x.reused && x.at.first.IsZero():
		return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server closed a kept connection without an answer; each request gets its own from now on"))
	}
	return x.fail(relay.Errorf(relay.CodeLocalClosed, "the local server closed the connection without an answer"))
}

// isDetached reports whether the tunnel does not serve the alias any more. In that case
// x.lost is not closed, and a channel that ends abnormally ended with its connection.
func (x *exchange) isDetached() bool {
	x.st.mu.Lock()
	defer x.st.mu.Unlock()
	return x.att.detached || x.st.attached != x.att
}

// awaitLost reports whether the tunnel is lost: its channels end a moment before the SSH
// gate calls Detach.
func (x *exchange) awaitLost() bool {
	const moment = 100 * time.Millisecond
	t := time.NewTimer(moment)
	defer t.Stop()
	select {
	case <-x.lost:
		return true
	case <-t.C:
		return false
	}
}
