package delivery

import (
	"errors"
	"time"

	"relay"
	"relay/wire"
)

// requestEnd says how the reading of the request ended.
type requestEnd uint8

const (
	open              requestEnd = iota // not yet
	whole                               // nothing left to read or to send
	gone                                // the caller left inside its body
	stalled                             // no byte came within the stall timeout
	malformed                           // its framing is broken
	tooLarge                            // its body is larger than the limit
	queueFull                           // the queue has no room for it
	unstored                            // a part of it cannot be stored
	unread                              // the stored body cannot be read
	answeredBefore100                   // a final answer came where 100 Continue was waited for
)

// uploadResult is sent by the upload when it ends.
type uploadResult struct {
	how requestEnd
	err *relay.Error
	at  time.Time
	// panicked is set when the upload panicked: uploadEnded panics with it, so that the
	// goroutine of the exchange ends the exchange.
	panicked *panicError
}

// request is the source of a request's bytes: a caller that is still sending or, with
// msg set, the store.
type request struct {
	d      *Delivery
	caller relay.Caller // reads the answer; nil for replays and queued deliveries
	head   *wire.Head
	body   *wire.Body
	rec    recording
	limit  int64
	// reserve, if not nil, reserves room in the queue while the body grows. It returns false
	// when there is none.
	reserve func(cost int64) bool
	// msg is the stored message; its body comes in parts when it has some.
	msg *relay.Message
	id  relay.ID
}

// receive initializes r as the request of a caller.
func (r *request) receive(d *Delivery, id relay.ID, c relay.Caller, h *wire.Head) {
	r.d, r.caller, r.head, r.body, r.msg, r.id = d, c, h, nil, nil, id
	r.limit, r.reserve = d.opt.MaxBody, nil
	r.rec.reset(d.store, id, 0, 0, h.Length)
	if h.Framing == relay.FramingNone {
		r.rec.whole = true
		return
	}
	r.body = wire.NewBody(h)
	r.body.Tee = r.rec.tee
	if _, end, _ := r.body.Feed(nil); end {
		r.rec.whole = true
	}
}

// resend initializes r as a stored request.
func (r *request) resend(d *Delivery, id relay.ID, h *wire.Head, m *relay.Message) {
	r.d, r.caller, r.head, r.body, r.msg, r.id = d, nil, h, nil, m, id
	r.limit, r.reserve = 0, nil
	r.rec.reset(d.store, id, 0, 0, 0)
	r.rec.whole = true
}

// receiveBytes parses bytes of the caller. n of them belong to this request; the caller's
// connection gets back the bytes behind its end.
func (r *request) receiveBytes(p []byte) (n int, how requestEnd, err *relay.Error) {
	r.rec.waitForParts(len(p))
	n, end, e := r.body.Feed(p)
	size, over := r.rec.progress()
	switch {
	case e != nil:
		return n, malformed, relay.AsError(e)
	case over || r.limit > 0 && size > r.limit:
		return n, tooLarge, errTooLarge(r.limit)
	case r.reserve != nil && !r.reserve(r.rec.cost()):
		return n, queueFull, errQueueFull()
	case end:
		r.caller.Unread(p[n:])
		r.rec.end()
		how = whole
	}
	if e := r.rec.partsError(); e != nil {
		return n, unstored, storeError(e)
	}
	return n, how, nil
}

// readError translates an error of the caller's connection into the end of the request.
func (r *request) readError(err error) uploadResult {
	var e *relay.Error
	if errors.As(err, &e) && e.Code == relay.CodeRequestTimeout {
		return uploadResult{how: stalled, err: e}
	}
	return uploadResult{how: gone, err: &relay.Error{
		Code: relay.CodeCallerGone, Detail: "the caller ended the connection inside its request body", Cause: err,
	}}
}

func errTooLarge(limit int64) *relay.Error {
	return relay.Errorf(relay.CodeBodyTooLarge, "the request body is larger than the limit of %d bytes", limit)
}

func errQueueFull() *relay.Error {
	return &relay.Error{
		Code:       relay.CodeQueueFull,
		Detail:     "the tunnel is offline and its queue is full; nothing of this request was kept",
		RetryAfter: queueFullWait,
	}
}

// storeError is what a failed step means to a caller.
func storeError(err error) *relay.Error {
	var e *relay.Error
	if errors.As(err, &e) && (e.Code == relay.CodeStorageFull || e.Code == relay.CodeQueueFull || e.Code == relay.CodeOverloaded) {
		c := *e
		if c.RetryAfter == 0 {
			c.RetryAfter = retryAfter
		}
		return &c
	}
	return &relay.Error{
		Code:       relay.CodeStoreUnavailable,
		Detail:     "the relay cannot store this at the moment; try again",
		RetryAfter: retryAfter,
		Cause:      err,
	}
}

// gather fills first with what should go out in the first write: the head as it is
// sent, and of the body what is there already, up to firstPiece in all.
func (x *exchange) gather() {
	r := &x.req
	switch {
	case r.msg != nil:
		x.gatherStored()
	case r.rec.whole:
		x.first, x.reqEnd = x.wire, uploadResult{how: whole}
	default:
		x.gatherBuffered()
	}
}

func (x *exchange) gatherBuffered() {
	r := &x.req
	x.first = x.wire
	n := min(r.caller.Buffered(), maxFirstWrite-len(x.wire))
	if n <= 0 {
		return
	}
	b := append(x.scratch[:0], x.wire...)
	b = append(b, make([]byte, n)...)
	x.scratch = b
	piece := b[len(x.wire):]
	got, err := r.caller.Read(piece)
	if err != nil && got == 0 {
		x.reqEnd = r.readError(err)
		return
	}
	used, how, e := r.receiveBytes(piece[:got])
	x.reqEnd = uploadResult{how: how, err: e}
	x.raw.Write(piece[:used])
	x.first = b[:len(x.wire)+used]
}

// gatherStored rebuilds a small message as a whole; of a larger one, or where the
// body has to wait for 100 Continue, only the head goes first.
func (x *exchange) gatherStored() {
	m := x.req.msg
	x.first = x.wire
	switch {
	case m.Framing == relay.FramingNone:
		x.reqEnd = uploadResult{how: whole}
		return
	case m.Body.Parts > 0:
		if err := x.req.checkParts(); err != nil { // nothing of it leaves then
			x.reqEnd = uploadResult{how: unread, err: storeError(err)}
		}
		return
	case x.expects(),
		len(x.wire)+len(m.Lines)+len(m.Body.Data) > maxFirstWrite:
		return
	}
	b := append(x.scratch[:0], x.wire...)
	skip := true
	err := wire.Rebuild(m, nil, nil, func(p []byte) error {
		if skip {
			skip = false
			return nil
		}
		x.raw.Write(p)
		b = append(b, p...)
		return nil
	})
	x.scratch = b
	if err != nil {
		x.reqEnd = uploadResult{how: unread, err: storeError(err)}
		return
	}
	x.first, x.reqEnd = b, uploadResult{how: whole}
}

// expects tells whether a stored body has to wait for 100 Continue.
func (x *exchange) expects() bool {
	h := x.req.head
	return h.Expect && h.Minor > 0 && x.req.msg.Body.Size > 0
}
