package delivery

import (
	"time"

	"relay"
)

// checkCallerEvery is how often an exchange asks whether its caller is still there, from
// the first byte of the final answer on. Answers that end sooner never ask.
const checkCallerEvery = time.Second

// watchCaller starts looking after the caller, whom nobody reads now: without it one who
// leaves while the local server is silent would be noticed by the next write only,
// which may never come.
func (x *exchange) watchCaller() {
	if _, ok := x.req.caller.(relay.PresenceReporter); ok && !x.callerGone {
		x.checkCallerAt = time.Now().Add(checkCallerEvery)
	}
}

// checkCaller acts on what became of the caller.
func (x *exchange) checkCaller(now time.Time) {
	x.checkCallerAt = time.Time{}
	w, ok := x.req.caller.(relay.PresenceReporter)
	if !ok || x.callerGone {
		return
	}
	if x.uploading && x.writeBlocked(now) < x.writeTimeout() { // the upload reads, and learns it there
		x.checkCallerAt = now.Add(checkCallerEvery)
		return
	}
	switch w.Presence() {
	case relay.CallerReset:
		x.callerGone, x.out = true, x.out[:0]
		x.limitUnreadAnswer()
		return
	case relay.CallerHalfClosed: // perhaps for good, perhaps reading on
		x.callerHalfClosed = true
		x.limitUnreadAnswer()
	case relay.CallerPresent:
	}
	x.checkCallerAt = now.Add(checkCallerEvery)
}

// onCallerWrite notes that bytes went to the caller. To one who has ended their side each
// write gives the time anew: had they closed, the write brings a reset, and the next
// look sees that.
func (x *exchange) onCallerWrite() {
	if x.callerHalfClosed {
		x.cutAt = time.Time{}
		x.limitUnreadAnswer()
	}
}
