package exchange

import (
	"time"

	"relay"
	"relay/wire"
)

// read reads the bytes that the local server has sent.
func (x *run) read() error {
	b := newPiece()
	defer pieces.Put(b)
	n, err := x.conn.Read(*b)
	if n > 0 {
		if x.at.first.IsZero() {
			x.at.first = time.Now()
			x.answer.early = !x.send.whole.Load()
		}
		if e := x.take((*b)[:n]); e != nil {
			return e
		}
	}
	switch {
	case err == nil:
		return nil
	case x.answer.state != "":
		x.answer.trailing = true
		return nil
	}
	return x.onConnEnd(err)
}

// take handles bytes of the local server: heads first, then the body.
func (x *run) take(p []byte) error {
	a := &x.answer
	for a.final == nil {
		if len(p) == 0 {
			return nil
		}
		h, rest, err := a.head(p)
		switch {
		case err != nil:
			return x.fail(err)
		case h == nil:
			return x.reserve()
		case h.Status < 200 && h.Status != 101:
			if err := a.addInterim(h); err != nil {
				return x.fail(err)
			}
			x.passInterim(h.Status, h.Raw)
		default:
			x.begin(h)
		}
		p = rest
	}
	switch {
	case a.state == relay.ResponseUpgraded:
		x.out.hold(p)
		return x.reserve()
	case a.state != "":
		a.trailing = a.trailing || len(p) > 0
		return nil
	}
	return x.takeBody(p)
}

// passInterim sends a 1xx response at once to a caller with HTTP/1.1. Nothing has to be stored first, because
// it does not tell the caller that the request was accepted.
func (x *run) passInterim(status int, head []byte) {
	if status == 100 {
		x.q.continued = true
		x.send.awaiting100.Store(false)
	}
	x.send.signalProceed(true)
	if x.q.Head.Minor > 0 {
		x.out.write(head)
	}
}

// begin handles the head of the final response.
func (x *run) begin(h *wire.Head) {
	x.storeBy = time.Now().Add(storeWait)
	x.send.signalProceed(false)
	x.send.awaiting100.Store(false)
	x.answer.begin(h)
	x.out.begin(h, x.q.ResponseTimeout)
}

// takeBody handles body bytes. It never passes on bytes that follow the body.
func (x *run) takeBody(p []byte) error {
	a := &x.answer
	n, ended, err := a.feed(p)
	if !ended && err == nil && x.isDurable() {
		x.out.flush()
		x.out.started = x.out.write(p[:n]) || x.out.started
	} else {
		x.out.hold(p[:n])
	}
	if e := x.reserve(); e != nil {
		return e
	}
	switch e := a.rec.partsError(); {
	case e != nil:
		return x.fail(StoreError(e))
	case err != nil:
		// The response has begun, whether or not its head was passed on, so it is recorded like one whose
		// connection breaks off.
		a.state = relay.ResponseTruncated
		return x.fail(relay.AsError(err))
	}
	if _, full := a.rec.progress(); full && !ended && !x.out.cutAt.IsZero() && !x.out.reads() {
		a.state = relay.ResponseCut
	}
	return nil
}

// reserve reserves buffer space for the bytes of the response that the exchange holds. Without space
// the exchange fails as overloaded. A caller that has already got a part of the response then gets no
// more of it, and the response is recorded as far as it arrived.
func (x *run) reserve() error {
	if x.out.space.cover(len(x.out.held) + len(x.answer.partial)) {
		return nil
	}
	if x.out.started {
		x.out.leave(readerCut)
		return nil
	}
	x.out.held, x.answer.partial = nil, nil
	x.out.space.release()
	return x.fail(relay.Errorf(relay.CodeOverloaded, "the memory for responses in progress is used up; retry in a moment"))
}
