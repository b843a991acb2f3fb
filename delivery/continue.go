package delivery

import (
	"time"

	"relay"
)

// startAwaiting100 notes a caller who keeps the whole body back until a 100 Continue comes. The
// body does not move then because nobody lets it, so that it cannot stall; but the
// local server has to say something as soon as the rest of the request may be late: in
// the time that it has for its answer. It is called before the upload begins.
func (x *exchange) startAwaiting100() {
	x.continueBy = time.Time{}
	x.awaiting100.Store(x.req.head.Expect && !x.continued && len(x.first) == len(x.wire))
	if x.awaiting100.Load() && x.responseTimeout > 0 {
		x.continueBy = x.at.open.Add(x.responseTimeout)
	}
}

// release100 notes that the caller waits no more: it has its 100, or a final answer.
func (x *exchange) release100() { x.awaiting100.Store(false) }

// onSilence ends an exchange whose local server took no more of the request, or says
// nothing to a caller who waits for its 100.
func (x *exchange) onSilence(now time.Time) verdict {
	if !x.continueBy.IsZero() && !now.Before(x.continueBy) {
		x.continueBy = time.Time{}
		if x.awaiting100.Load() {
			return x.fail(errNoAnswer(x.responseTimeout))
		}
	}
	return x.onUploadCheck(now)
}

func errNoAnswer(patience time.Duration) *relay.Error {
	return relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer within %v", patience)
}

// bodyNotSent tells whether the caller waits for a 100 Continue that will not come.
func (x *exchange) bodyNotSent() bool {
	size, _ := x.req.rec.progress()
	return x.req.head.Expect && !x.continued && size == 0
}

// send100 gives a caller who waits for it the 100 Continue that no local server
// will send any more. It is not part of any answer, and not recorded as one.
func (x *exchange) send100() {
	x.release100()
	waits := x.uploading || x.req.caller.Buffered() == 0 // the upload has read what was there
	if waits && x.bodyNotSent() {
		x.continued = true
		x.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	}
}
