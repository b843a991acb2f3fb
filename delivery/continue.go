package delivery

import (
	"time"

	"relay"
)

// startAwaiting100 notes that the caller holds its whole body back until it gets a 100
// Continue (RFC 9110, section 10.1.1). Such a body cannot stall, but the local server
// has to answer within the response timeout. It is called before the upload starts.
func (x *exchange) startAwaiting100() {
	x.continueBy = time.Time{}
	x.awaiting100.Store(x.req.head.Expect && !x.continued && len(x.first) == len(x.wire))
	if x.awaiting100.Load() && x.responseTimeout > 0 {
		x.continueBy = x.at.open.Add(x.responseTimeout)
	}
}

// release100 notes that the caller got its 100 Continue, or a final answer.
func (x *exchange) release100() { x.awaiting100.Store(false) }

// onSilence fails the exchange when the local server takes no more of the request, or
// does not answer a caller that waits for 100 Continue.
func (x *exchange) onSilence(now time.Time) verdict {
	if !x.continueBy.IsZero() && !now.Before(x.continueBy) {
		x.continueBy = time.Time{}
		if x.awaiting100.Load() {
			return x.fail(errNoAnswer(x.responseTimeout))
		}
	}
	return x.onUploadCheck(now)
}

func errNoAnswer(limit time.Duration) *relay.Error {
	return relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer within %v", limit)
}

// bodyNotSent reports whether the caller still waits for a 100 Continue and has sent
// nothing of its body.
func (x *exchange) bodyNotSent() bool {
	size, _ := x.req.rec.progress()
	return x.req.head.Expect && !x.continued && size == 0
}

// send100 sends a 100 Continue of our own to a caller that waits for one, where no local
// server will send it. It is not recorded as part of the answer.
func (x *exchange) send100() {
	x.release100()
	waits := x.uploading || x.req.caller.Buffered() == 0 // the upload has read what was there
	if waits && x.bodyNotSent() {
		x.continued = true
		x.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	}
}
