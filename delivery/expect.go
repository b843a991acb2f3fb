package delivery

import (
	"time"

	"relay"
)

// holds notes a caller who keeps the whole body back until a 100 Continue comes. The
// body does not move then because nobody lets it, so that it cannot stall; but the
// local server has to say something as soon as the rest of the request may be late: in
// the time that it has for its answer. It is called before the upload begins.
func (x *exchange) holds() {
	x.goAt = time.Time{}
	x.held.Store(x.req.head.Expect && !x.continued && len(x.first) == len(x.wire))
	if x.held.Load() && x.patience > 0 {
		x.goAt = x.at.open.Add(x.patience)
	}
}

// letGo notes that the caller waits no more: it has its 100, or a final answer.
func (x *exchange) letGo() { x.held.Store(false) }

// onSilence ends an exchange whose local server took no more of the request, or says
// nothing to a caller who waits for its 100.
func (x *exchange) onSilence(now time.Time) verdict {
	if !x.goAt.IsZero() && !now.Before(x.goAt) {
		x.goAt = time.Time{}
		if x.held.Load() {
			return x.fail(unanswered(x.patience))
		}
	}
	return x.onPush(now)
}

func unanswered(patience time.Duration) *relay.Error {
	return relay.Errorf(relay.CodeLocalTimeout, "the local server did not answer within %v", patience)
}

// unsentBody tells whether the caller waits for a 100 Continue that will not come.
func (x *exchange) unsentBody() bool {
	size, _ := x.req.rec.progress()
	return x.req.head.Expect && !x.continued && size == 0
}

// continueNow gives a caller who waits for it the 100 Continue that no local server
// will send any more. It is not part of any answer, and not recorded as one.
func (x *exchange) continueNow() {
	x.letGo()
	waits := x.uploading || x.req.caller.Buffered() == 0 // the upload has read what was there
	if waits && x.unsentBody() {
		x.continued = true
		x.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	}
}
