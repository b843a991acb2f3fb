package delivery

import (
	"time"

	"relay"
)

// checkCallerEvery is how often an exchange asks whether its caller is still there, from
// the first byte of the final answer on. Answers that end sooner never ask.
const checkCallerEvery = time.Second

// watchCaller starts to check regularly whether the caller is still connected. Nothing
// reads from the caller at this point, so a caller that leaves while the local server is
// silent would only be noticed by the next write, which may never come.
func (x *exchange) watchCaller() {
	if !x.callerGone {
		x.checkCallerAt = time.Now().Add(checkCallerEvery)
	}
}

// checkCaller acts on a caller that has left or has closed its sending side.
func (x *exchange) checkCaller(now time.Time) {
	x.checkCallerAt = time.Time{}
	if x.callerGone {
		return
	}
	if x.uploading && x.writeBlocked(now) < x.writeTimeout() { // the upload reads, and learns it there
		x.checkCallerAt = now.Add(checkCallerEvery)
		return
	}
	switch x.req.caller.Presence() {
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

// onCallerWrite notes that bytes went to the caller. If the caller has closed its
// sending side, each write extends the time limit: had the caller closed the whole
// connection, the write would cause a reset, and the next check would see that.
func (x *exchange) onCallerWrite() {
	if x.callerHalfClosed {
		x.cutAt = time.Time{}
		x.limitUnreadAnswer()
	}
}
