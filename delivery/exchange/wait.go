package exchange

import (
	"time"

	"relay"
	"relay/waits"
)

// arm sets the timer to the next time limit or check before the end of the response.
func (x *run) arm() {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	switch w := x.at.whole; {
	case x.answer.final != nil:
		sooner(x.limit(x.out.cutAt))
		sooner(x.out.checkAt)
		if x.accept != nil {
			sooner(x.limit(x.storeBy))
		}
	case w.IsZero():
		sooner(x.limit(x.due.upload))
		sooner(x.limit(x.due.continueLine))
	default:
		if !x.q.Accepted() {
			sooner(w.Add(acceptDelay))
		}
		if !x.slow && x.at.first.IsZero() {
			sooner(w.Add(slowAfter))
		}
		switch {
		case x.q.ResponseTimeout > 0:
			sooner(x.limit(w.Add(x.q.ResponseTimeout)))
		case x.out.sink != nil:
			if t := w.Add(checkCallerEvery); t.After(x.due.caller) {
				x.due.caller = t
			}
			sooner(x.limit(x.due.caller))
		}
	}
	x.setTimer(next)
}

// pausesApart is the least time between two late timers that postpone limits. A process whose timers are always
// late, or a local server and a caller that make them late, thus postpone a limit only once.
const pausesApart = 30 * time.Second

// catchUp postpones the limits of the exchange by waits.CatchUp, and returns true, if the timer is noticed late:
// because this process was stopped, or because the exchange has waited for its caller to read.
func (x *run) catchUp(now time.Time) bool {
	if !waits.IsLate(x.due.armed, now) || now.Sub(x.due.resumed) < pausesApart {
		return false
	}
	x.due.resumed = now.Add(waits.CatchUp)
	return true
}

// limit returns the time from which a time limit that ends at t may end the exchange: t, or x.due.resumed if
// that is later; zero = there is no limit.
func (x *run) limit(t time.Time) time.Time {
	if !t.IsZero() && t.Before(x.due.resumed) {
		return x.due.resumed
	}
	return t
}

func (x *run) setTimer(t time.Time) {
	switch {
	case t.Equal(x.due.armed):
		return
	case t.IsZero():
		x.timer.Stop()
	default:
		x.timer.Reset(time.Until(t))
	}
	x.due.armed = t
}

// onTime handles the time limits and checks that are due. A limit does not end the exchange if the awaited
// event has come in time: bytes that have arrived are read first, and a limit that is noticed late waits
// CatchUp for them.
func (x *run) onTime(now time.Time) error {
	x.catchUp(now)
	x.due.armed = time.Time{}
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	decides := func(t time.Time) bool { return due(x.limit(t)) }
	w := x.at.whole
	switch {
	case x.answer.final != nil:
		switch {
		case x.accept != nil && decides(x.storeBy):
			if closed(x.accept.Done()) {
				return x.onAccept()
			}
			return x.storeLate()
		case decides(x.out.cutAt):
			return x.cutAnswer()
		case due(x.out.checkAt) && x.sending && x.send.blocked(x.q, now) < checkCallerEvery:
			// The sender still reads from the caller, and notices when the caller leaves.
			x.out.checkAt = now.Add(checkCallerEvery)
		case due(x.out.checkAt):
			x.out.check(now)
		}
		return nil
	case closed(x.conn.Ready()):
		return x.read()
	case w.IsZero():
		if decides(x.due.continueLine) {
			x.due.continueLine = time.Time{}
			if x.send.awaiting100.Load() {
				return x.fail(x.errNoAnswer())
			}
		}
		if decides(x.due.upload) {
			return x.checkUpload(now)
		}
		return nil
	}
	if due(w.Add(acceptDelay)) && !x.q.Accepted() {
		x.sendAccept()
	}
	if due(w.Add(slowAfter)) && x.at.first.IsZero() {
		x.becomeSlow()
	}
	if x.q.ResponseTimeout > 0 && decides(w.Add(x.q.ResponseTimeout)) {
		return x.fail(x.errNoAnswer())
	}
	if decides(x.due.caller) {
		x.due.caller = now.Add(checkCallerEvery)
		return x.checkCaller(now)
	}
	return nil
}

// lastReads is the largest number of pieces of an answer that have arrived already and are still read
// before the answer is cut.
const lastReads = 8

// cutAnswer ends a response without a reader that has reached its time limit. The bytes that have
// arrived are recorded; they may contain the end of the response.
func (x *run) cutAnswer() error {
	for range lastReads {
		if !closed(x.conn.Ready()) {
			break
		}
		if err := x.read(); err != nil || x.answer.state != "" {
			return err
		}
	}
	x.answer.state = relay.ResponseCut
	return nil
}

func (x *run) errNoAnswer() *relay.Error {
	return relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer within %v", x.q.ResponseTimeout)
}

// becomeSlow closes the tunnel's idle channels if the local server may not have begun to read this
// request: a server that handles one connection at a time may be waiting for the next request on an
// idle one.
func (x *run) becomeSlow() {
	if !x.slow {
		x.slow = true
		x.conn.Slow()
	}
}

// writeTimeout returns the time in which the local server must take a piece of the request: the
// response timeout. After the first piece it is at least minWriteTimeout, so that a slow network does
// not look like a server that hangs.
func (x *run) writeTimeout() time.Duration {
	if x.send.onFirst.Load() {
		return x.q.ResponseTimeout
	}
	return max(x.q.ResponseTimeout, minWriteTimeout)
}

// checkUpload checks a sender that is still running. If its write has been blocked for slowAfter, it calls
// becomeSlow; after writeTimeout it fails the exchange, which would otherwise keep its caller and its slot.
// It asks the operating system whether the caller has left inside its body, because a blocked sender does not read.
func (x *run) checkUpload(now time.Time) error {
	waited, limit := x.send.blocked(x.q, now), x.writeTimeout()
	if waited >= slowAfter && x.at.first.IsZero() {
		x.becomeSlow()
	}
	if x.q.ResponseTimeout > 0 && waited >= limit {
		return x.fail(relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer, and did not read the next piece of the request within %v", limit))
	}
	if waited >= slowAfter {
		if err := x.checkCaller(now); err != nil {
			return err
		}
	}
	next := checkCallerEvery
	if !x.slow {
		next = slowAfter
	}
	if x.q.ResponseTimeout > 0 {
		next = min(next, limit-waited)
	}
	x.due.upload = now.Add(max(next, time.Millisecond))
	return nil
}

// checkCaller ends an exchange without a response whose caller has left: at once if the caller left
// inside its body. Otherwise the response timeout ends the exchange. If there is none, checkCaller ends it
// defaultResponseTimeout after the check that found the caller gone.
func (x *run) checkCaller(now time.Time) error {
	if x.out.sink == nil {
		return nil
	}
	p := x.out.sink.Presence()
	switch {
	case p == relay.CallerPresent:
		x.due.leftAt = time.Time{}
	case p == relay.CallerReset && !x.q.rec.isWhole():
		return x.fail(relay.Errorf(relay.CodeCallerGone, "the caller ended the connection inside its request body"))
	case x.q.ResponseTimeout > 0:
	case x.due.leftAt.IsZero():
		x.due.leftAt = now
	case now.Sub(x.due.leftAt) >= defaultResponseTimeout:
		return x.fail(relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer within %v after the caller had left", defaultResponseTimeout))
	}
	return nil
}
