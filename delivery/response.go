package delivery

import (
	"bytes"
	"errors"
	"time"

	"relay"
	"relay/delivery/pool"
	"relay/wire"
)

// onBytes handles bytes from the local server: heads first, then the body.
func (x *exchange) onBytes(p []byte) verdict {
	if x.final == nil {
		rest, v := x.heads(p)
		if v != goOn || x.final == nil {
			return v
		}
		p = rest
	}
	switch {
	case x.state == relay.ResponseUpgraded:
		x.hold(p)
		return x.reserveHeld()
	case x.done:
		x.trailingBytes = x.trailingBytes || len(p) > 0
		return goOn
	}
	return x.onBody(p)
}

// heads parses response heads up to the final one and returns the bytes behind it.
func (x *exchange) heads(p []byte) ([]byte, verdict) {
	limits := wire.Limits{Head: int(x.d.opt.MaxHead), Seen: len(x.head)}
	if len(x.head) > 0 {
		x.head = append(x.head, p...)
		p = x.head
	}
	for len(p) > 0 {
		h, n, err := wire.Response(p, limits, x.req.head)
		limits.Seen = 0
		if errors.Is(err, wire.ErrMore) {
			x.head = append(x.head[:0], p...)
			return nil, x.reserveHeld()
		}
		if err != nil {
			return nil, x.fail(relay.AsError(err))
		}
		p = p[n:]
		h.Raw = bytes.Clone(h.Raw)
		if h.Status >= 200 || h.Status == 101 {
			x.begin(h)
			return p, goOn
		}
		if v := x.onInterim(h); v != goOn {
			return nil, v
		}
	}
	x.head = x.head[:0]
	return nil, goOn
}

// onInterim sends a 1xx response to the caller at once. Nothing has to be stored first,
// because it does not tell the caller that the request was accepted.
func (x *exchange) onInterim(h *wire.Head) verdict {
	x.interimN += len(h.Raw)
	if len(x.interim) == maxInterim || x.d.opt.MaxHead > 0 && int64(x.interimN) > x.d.opt.MaxHead {
		return x.fail(relay.Errorf(relay.CodeLocalMalformed, "the local server sent too many interim answers (1xx)"))
	}
	x.interim = append(x.interim, h.Raw)
	if h.Status == 100 {
		x.continued = true
		x.release100()
	}
	x.signalContinue(true)
	if x.req.caller != nil && x.req.head.Minor > 0 {
		x.write(h.Raw)
	}
	return goOn
}

// signalContinue tells an upload that waits for 100 Continue whether to send the body.
func (x *exchange) signalContinue(yes bool) {
	if x.continueCh == nil {
		return
	}
	select {
	case x.continueCh <- yes:
	default:
	}
}

// begin handles the head of the final answer.
func (x *exchange) begin(h *wire.Head) {
	x.final = h
	x.signalContinue(false)
	x.release100()
	if x.req.caller == nil || x.callerGone {
		x.limitUnreadAnswer()
	} else {
		x.watchCaller()
	}
	expect := int64(0)
	if h.Framing == relay.FramingLength {
		expect = h.Length
	}
	x.res.reset(x.d.store, x.event.ID, x.attempt.N, x.d.opt.MaxResponseCapture, expect)
	x.hold(h.Raw)
	switch {
	case h.Status == 101:
		x.done, x.trailingBytes, x.state = true, true, relay.ResponseUpgraded
	case h.Framing == relay.FramingNone:
		x.endAnswer()
	default:
		x.body = wire.NewBody(h)
		x.body.Tee = x.res.tee
	}
}

// endAnswer notes that the answer has ended as its framing says.
func (x *exchange) endAnswer() {
	x.res.end()
	x.done, x.state = true, relay.ResponseComplete
}

// limitUnreadAnswer sets a time limit for an answer that no caller reads.
func (x *exchange) limitUnreadAnswer() {
	if x.cutAt.IsZero() {
		t := x.responseTimeout
		if t <= 0 {
			t = defaultResponseTimeout
		}
		x.cutAt = time.Now().Add(t)
	}
}

// onBody handles body bytes. It never passes on bytes behind the end of the body.
func (x *exchange) onBody(p []byte) verdict {
	x.res.waitForParts(len(p))
	n, end, err := x.body.Feed(p)
	if end {
		x.endAnswer()
		x.trailingBytes = n < len(p)
	}
	if x.durable && !x.done && err == nil {
		x.flush()
		x.responseStarted = x.write(p[:n]) || x.responseStarted
	} else {
		x.hold(p[:n])
	}
	if v := x.reserveHeld(); v != goOn {
		return v
	}
	switch e := x.res.partsError(); {
	case e != nil:
		return x.fail(storeError(e))
	case err != nil && x.responseStarted:
		x.state = relay.ResponseTruncated
		return x.fail(relay.AsError(err))
	case err != nil:
		x.final = nil // no usable answer
		return x.fail(relay.AsError(err))
	}
	if _, full := x.res.progress(); full && !x.cutAt.IsZero() && !x.done && (x.callerGone || x.req.caller == nil) {
		x.cutShort()
	}
	return goOn
}

// hold keeps bytes for the caller until they may be written.
func (x *exchange) hold(p []byte) {
	if x.req.caller != nil && !x.callerGone {
		x.out = append(x.out, p...)
	}
}

// freeHeld is how many bytes an exchange may hold without a reservation, reserveStep the
// smallest reservation.
const freeHeld, reserveStep = 16 << 10, 64 << 10

// reserveHeld reserves buffer space for the bytes of the answer that the exchange holds.
// Without space the exchange fails as overloaded; no byte of the answer was written to
// the caller by then.
func (x *exchange) reserveHeld() verdict {
	held := int64(len(x.out) + len(x.head))
	if held <= freeHeld || held <= x.reserved {
		return goOn
	}
	more := max(held-x.reserved, reserveStep)
	if !x.d.opt.Budget.Reserve(x.alias.Owner, more) {
		x.out, x.head = nil, nil
		x.unreserve()
		return x.fail(relay.Errorf(relay.CodeOverloaded, "too many answers wait for the store or for their callers; try again in a moment"))
	}
	x.reserved += more
	return goOn
}

func (x *exchange) unreserve() {
	x.d.opt.Budget.Release(x.alias.Owner, x.reserved)
	x.reserved = 0
}

// flush writes the bytes that were held.
func (x *exchange) flush() {
	if len(x.out) > 0 {
		x.responseStarted = x.write(x.out) || x.responseStarted
		x.out = x.out[:0]
		x.unreserve()
	}
}

// write writes bytes to the caller. It returns false when there is no caller or the caller
// has gone. That does not end the exchange: the answer is still recorded.
func (x *exchange) write(p []byte) bool {
	if x.req.caller == nil || x.callerGone || len(p) == 0 {
		return false
	}
	if x.final != nil && x.final.Framing == relay.FramingClose && !x.responseStarted {
		x.req.caller.ResetOnCrash()
	}
	for len(p) > 0 {
		piece := p[:min(len(p), writeSize)]
		if _, err := x.req.caller.Write(piece); err != nil {
			x.callerGone, x.partialWrite = true, true
			x.out = x.out[:0]
			if x.final != nil {
				x.limitUnreadAnswer()
			}
			return true
		}
		p = p[len(piece):]
	}
	x.onCallerWrite()
	return true
}

// reusable returns for how long the channel may be kept for another request, and whether
// it may be kept at all (ADR 0005). It is called once the request was read to its end.
func (x *exchange) reusable() (time.Duration, bool) {
	q, a := x.req.head, x.final
	limit := pool.ReuseLimit
	if t := a.KeepAliveTimeout; t >= 0 {
		limit = min(limit, time.Duration(t)*time.Second/2)
	}
	hasBody := q.Framing != relay.FramingNone
	switch {
	case limit <= 0, x.alias.Settings.FreshConnections, x.state != relay.ResponseComplete:
	case q.Minor == 0 || a.Minor == 0 || q.Close || a.Close || a.Sloppy:
	case q.Upgrade || q.Expect || q.Auth || a.Auth || q.ProxyConnection || a.ProxyConnection:
	case a.Framing != relay.FramingLength && a.Framing != relay.FramingChunked:
	case !reusableMethod(q), x.answeredEarly, x.trailingBytes: // answeredEarly is also set after a failed write
	case hasBody && (a.Status >= 400 || x.req.caller == nil): // a replay has no caller that could go on
	case x.req.body != nil && x.req.body.HasTrailers():
	case x.pooled == nil || !x.pooled.Usable() || !x.att.pool.MayReuse():
	default:
		if hasBody {
			x.pooled.Owner = x.req.caller
		}
		return limit, true
	}
	return 0, false
}

func reusableMethod(h *wire.Head) bool {
	switch string(h.Method) {
	case "GET":
		return h.Framing == relay.FramingNone
	case "POST", "PUT", "PATCH":
		return h.Framing == relay.FramingLength || h.Framing == relay.FramingChunked
	}
	return false
}

// checkReusedAnswer ends reuse for the tunnel when a reused channel was answered as if the
// request had not been understood.
func (x *exchange) checkReusedAnswer() {
	if !x.reused || x.final == nil {
		return
	}
	switch x.final.Status {
	case 400, 408, 501, 505:
		x.att.pool.DisableReuse()
	}
}
