package exchange

import (
	"time"

	"relay"
)

// Result is the result of an exchange.
type Result struct {
	// Untaken says that no byte of the request reached the local server, and that Run has stored
	// nothing. The caller of Run has to close the connection, and may send the request on another one or queue it.
	// Err is the reason, if there is one; the connection is closed then.
	Untaken bool
	// Err is the error for the caller of the request; nil = none, because the answer was sent or the
	// caller has left.
	Err    *relay.Error
	Stored relay.ID // id of the event, if the event is stored; else zero
	// StoreErr is the reason why a step of the store has failed; nil = no step has. Recorded says that
	// all steps are stored.
	StoreErr error
	Recorded bool

	Attempt  *relay.Attempt // if Ended: the attempt as it was given to the journal
	Ended    bool           // the attempt has ended, and its end was given to the journal
	Status   int            // status of an answer that the caller got completely, as far as is known; else 0
	Gone     bool           // the record says that the caller did not get the whole answer
	Left     bool           // the caller takes no more of an answer
	KeepOpen bool           // the caller's connection may carry another request
	Panicked bool           // the attempt was interrupted, and the caller's connection reset
	// Answered says that the local server has answered and the connection was not upgraded. Local is then the
	// time from the opening of the connection to the end of the answer.
	Local    time.Duration
	Answered bool
}

// made returns the result of an exchange that was stored, or should have been. why is the error for the caller;
// stored means that the caller may be told that the event is stored.
func (x *run) made(why *relay.Error, stored bool) Result {
	r := Result{
		Err: why, StoreErr: x.storeErr, Recorded: x.recorded,
		Attempt: x.attempt, Ended: x.finish != nil, Gone: x.gone, Left: x.out.reader >= readerLeft,
	}
	if stored {
		r.Stored = x.q.Event.ID
	}
	if why != nil && (why.Code == relay.CodeStorageFull || why.Code == relay.CodeQueueFull) && x.maybeReached {
		// These codes promise that nothing was forwarded.
		c := *why
		c.Code = relay.CodeStoreUnavailable
		c.Detail = "the request, or a part of it, went out to the local server, but the relay has no room left to store it"
		r.Err = &c
	}
	if f := x.answer.final; f != nil {
		if x.out.started && !x.gone {
			r.Status = f.Status
		}
		if !x.at.open.IsZero() && !x.at.end.IsZero() && x.answer.state != relay.ResponseUpgraded {
			r.Local, r.Answered = x.at.end.Sub(x.at.open), true
		}
	}
	return r
}
