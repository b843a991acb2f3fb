package delivery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"relay"
	"relay/record"
	"relay/wire"
)

// requestEnd says how the reading of the request ended.
type requestEnd uint8

const (
	open              requestEnd = iota // not yet
	whole                               // nothing left to read or to send
	notTaken                            // the channel has taken not one byte of the first piece
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

// receiveBytes parses bytes of the caller. n of them belong to this request; the caller's
// connection gets back the bytes behind its end.
func (x *exchange) receiveBytes(p []byte) (n int, u uploadResult) {
	r, limit := &x.rec, x.d.opt.MaxBody
	r.waitForParts(len(p))
	n, end, e := x.body.Feed(p)
	size, over := r.progress()
	switch {
	case e != nil:
		return n, uploadResult{how: malformed, err: relay.AsError(e)}
	case over || limit > 0 && size > limit:
		return n, uploadResult{how: tooLarge, err: errTooLarge(limit)}
	case !x.growReservation():
		return n, uploadResult{how: queueFull, err: errQueueFull()}
	case end:
		x.caller.Unread(p[n:])
		r.end()
		u.how = whole
	}
	if e := r.partsError(); e != nil {
		u = uploadResult{how: unstored, err: storeError(e)}
	}
	return n, u
}

// readError translates an error of the caller's connection into the end of the request.
func readError(err error) uploadResult {
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
		c.RetryAfter = cmp.Or(c.RetryAfter, retryAfter)
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
// sent, and of the body what is there already, up to maxFirstWrite in all.
func (x *exchange) gather() {
	x.first = x.wire
	switch {
	case x.stored:
		x.gatherStored()
	case x.rec.whole:
		x.reqEnd.how = whole
	default:
		x.gatherBuffered()
	}
}

func (x *exchange) gatherBuffered() {
	n := min(x.caller.Buffered(), maxFirstWrite-len(x.wire))
	if n <= 0 {
		return
	}
	b := append(x.scratch[:0], x.wire...)
	b = append(b, make([]byte, n)...)
	x.scratch = b
	piece := b[len(x.wire):]
	got, err := x.caller.Read(piece)
	if err != nil && got == 0 {
		x.reqEnd = readError(err)
		return
	}
	n, x.reqEnd = x.receiveBytes(piece[:got])
	x.raw.Write(piece[:n])
	x.first = b[:len(x.wire)+n]
}

// gatherStored rebuilds a small message as a whole; of a larger one, or where the
// body has to wait for 100 Continue, only the head goes first.
func (x *exchange) gatherStored() {
	m := &x.event.Request
	switch {
	case m.Framing == relay.FramingNone:
		x.reqEnd.how = whole
		return
	case m.Body.Parts > 0:
		ctx, cancel := context.WithTimeout(x.d.base, storeWait)
		defer cancel()
		if err := x.d.store.CheckParts(ctx, x.event.ID, 0, m.Body.Parts); err != nil { // nothing of it leaves then
			x.reqEnd = uploadResult{how: unread, err: storeError(err)}
		}
		return
	case x.expects(),
		len(x.wire)+len(m.Lines)+len(m.Body.Data) > maxFirstWrite:
		return
	}
	out := bytes.NewBuffer(append(x.scratch[:0], x.wire...))
	err := x.rebuild(out)
	x.scratch = out.Bytes()
	if err != nil {
		x.reqEnd = uploadResult{how: unread, err: storeError(err)}
		return
	}
	x.first, x.reqEnd.how = x.scratch, whole
}

// rebuild writes the stored body in its wire form to w, in pieces. Parts of a large body
// are read one by one, each in one short query.
func (x *exchange) rebuild(w io.Writer) error {
	m := &x.event.Request
	var body io.Reader
	if m.Body.Parts > 0 {
		var err error
		if body, err = record.OpenBody(x.d.base, timedParts{x.d.store}, x.event.ID, 0, &m.Body); err != nil {
			return err
		}
	}
	noHead := []byte{} // it has its own form in x.wire
	return wire.Rebuild(io.MultiWriter(&x.raw, w), m, noHead, body)
}

// timedParts bounds the time that the store has for each part of a body.
type timedParts struct{ Store }

func (s timedParts) BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	return s.Store.BodyPart(ctx, id, n, i)
}

// expects tells whether a stored body has to wait for 100 Continue.
func (x *exchange) expects() bool {
	return x.head.Expect && x.head.Minor > 0 && x.event.Request.Body.Size > 0
}
