package delivery

import (
	"time"

	"relay"
)

// lookEvery is how often an exchange asks whether its caller is still there, from
// the first byte of the final answer on. Answers that end sooner never ask.
const lookEvery = time.Second

// watch starts looking after the caller, whom nobody reads now: without it one who
// leaves while the local server is silent would be noticed by the next write only,
// which may never come.
func (x *exchange) watch() {
	if _, ok := x.req.caller.(relay.PresenceReporter); ok && !x.silent {
		x.lookAt = time.Now().Add(lookEvery)
	}
}

// look acts on what became of the caller.
func (x *exchange) look(now time.Time) {
	x.lookAt = time.Time{}
	w, ok := x.req.caller.(relay.PresenceReporter)
	if !ok || x.silent {
		return
	}
	if x.uploading && x.stuck(now) < x.pushLimit() { // the upload reads, and learns it there
		x.lookAt = now.Add(lookEvery)
		return
	}
	switch w.Presence() {
	case relay.CallerReset:
		x.silent, x.out = true, x.out[:0]
		x.listenOnly()
		return
	case relay.CallerHalfClosed: // perhaps for good, perhaps reading on
		x.ended = true
		x.listenOnly()
	case relay.CallerPresent:
	}
	x.lookAt = now.Add(lookEvery)
}

// taken notes that bytes went to the caller. To one who has ended their side each
// write gives the time anew: had they closed, the write brings a reset, and the next
// look sees that.
func (x *exchange) taken() {
	if x.ended {
		x.cutAt = time.Time{}
		x.listenOnly()
	}
}
