package delivery

import (
	"bytes"
	"errors"
	"time"

	"relay"
	"relay/delivery/pool"
	"relay/wire"
)

const (
	// checkCallerEvery is how often an exchange asks whether its caller is still there, from
	// the first byte of the final answer on. Answers that end sooner never ask.
	checkCallerEvery = time.Second
	// streamCutWait is how long a stream may be silent after its caller has closed its sending
	// side, which is all that is seen of one that has left. One that still reads gets on with
	// each byte.
	streamCutWait = 800 * time.Millisecond
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
	case x.state != "":
		x.trailingBytes = x.trailingBytes || len(p) > 0
		return goOn
	}
	return x.onBody(p)
}

// heads parses response heads up to the final one and returns the bytes behind it.
func (x *exchange) heads(p []byte) ([]byte, verdict) {
	limits := wire.Limits{Head: int(x.d.opt.MaxHead), Seen: len(x.partial)}
	if len(x.partial) > 0 {
		x.partial = append(x.partial, p...)
		p = x.partial
	}
	for len(p) > 0 {
		h, n, err := wire.Response(p, limits, x.head)
		limits.Seen = 0
		if errors.Is(err, wire.ErrMore) {
			x.partial = append(x.partial[:0], p...)
			return nil, x.reserveHeld()
		}
		if err != nil {
			x.noteRefused(p)
			return nil, x.fail(relay.AsError(err))
		}
		p = p[n:]
		h.Raw = bytes.Clone(h.Raw)
		if h.Status >= 200 || h.Status == 101 {
			x.partial = x.partial[:0]
			x.begin(h)
			return p, goOn
		}
		if v := x.onInterim(h); v != goOn {
			return nil, v
		}
	}
	x.partial = x.partial[:0]
	return nil, goOn
}

// maxRefusedShown is how much of the head of a refused answer the record shows.
const maxRefusedShown = 1 << 10

// noteRefused keeps the beginning of an answer that is refused, for the record.
func (x *exchange) noteRefused(head []byte) {
	if end := wire.HeadEnd(head, 0); end >= 0 {
		head = head[:end]
	}
	x.refused = bytes.Clone(head[:min(len(head), maxRefusedShown)])
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
		x.awaiting100.Store(false)
	}
	x.signalContinue(true)
	if x.caller != nil && x.head.Minor > 0 {
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
	x.final, x.storeBy = h, time.Now().Add(storeWait)
	x.signalContinue(false)
	x.awaiting100.Store(false)
	if x.caller != nil && h.Framing != relay.FramingNone && h.Framing != relay.FramingLength {
		x.leftBefore = x.callerState >= callerGone || x.caller.Presence() != relay.CallerPresent
	}
	if x.caller == nil || x.callerState >= callerGone {
		x.limitUnreadAnswer()
	} else {
		// Nothing reads from the caller now, so that one that leaves while the local server is
		// silent would only be noticed by the next write, which may never come.
		x.checkCallerAt = time.Now().Add(checkCallerEvery)
	}
	expect := int64(0)
	if h.Framing == relay.FramingLength {
		expect = h.Length
	}
	x.res.reset(x.d.store, x.event.ID, x.attempt.N, x.d.opt.MaxResponseCapture, expect)
	x.hold(h.Raw)
	switch {
	case h.Status == 101:
		x.state = relay.ResponseUpgraded
	case h.Framing == relay.FramingNone:
		x.endAnswer()
	default:
		x.resBody = wire.NewBody(h)
		x.resBody.Tee = x.res.tee
	}
}

// endAnswer notes that the answer has ended as its framing says.
func (x *exchange) endAnswer() {
	x.res.end()
	x.state = relay.ResponseComplete
}

// limitUnreadAnswer sets a time limit for an answer that no caller reads.
func (x *exchange) limitUnreadAnswer() {
	if !x.cutAt.IsZero() {
		return
	}
	t := x.responseTimeout
	switch {
	case x.caller != nil && x.isStream() && x.callerState >= callerGone:
		t = 0
	case x.caller != nil && x.isStream():
		t = streamCutWait
	case t <= 0:
		t = defaultResponseTimeout
	}
	x.cutAt = time.Now().Add(t)
}

// isStream reports whether the answer may go on for as long as somebody takes it: nothing of
// it is worth waiting for once its caller has left. An answer without a length that began
// after that is the result that the sender of a webhook did not wait for.
func (x *exchange) isStream() bool {
	h := x.final
	if h.Framing == relay.FramingNone {
		return false
	}
	if h.Framing != relay.FramingLength && !x.leftBefore {
		return true
	}
	for _, f := range wire.Fields(h.Raw) {
		if bytes.EqualFold(f.Name, []byte("Content-Type")) {
			kind, _, _ := bytes.Cut(f.Value, []byte(";"))
			return bytes.EqualFold(bytes.TrimSpace(kind), []byte("text/event-stream"))
		}
	}
	return false
}

// onBody handles body bytes. It never passes on bytes behind the end of the body.
func (x *exchange) onBody(p []byte) verdict {
	x.res.waitForParts(len(p))
	n, end, err := x.resBody.Feed(p)
	if end {
		x.endAnswer()
		x.trailingBytes = n < len(p)
	}
	if !end && err == nil && x.isDurable() {
		x.flush()
		x.responseStarted = x.write(p[:n]) || x.responseStarted
		x.begun = true
	} else {
		x.hold(p[:n])
	}
	if v := x.reserveHeld(); v != goOn {
		return v
	}
	switch e := x.res.partsError(); {
	case e != nil:
		return x.fail(storeError(e))
	case err != nil && x.begun: // a replay too, although nobody has got it
		x.state = relay.ResponseTruncated
		return x.fail(relay.AsError(err))
	case err != nil:
		x.noteRefused(x.final.Raw)
		x.final = nil // no usable answer
		return x.fail(relay.AsError(err))
	}
	if _, full := x.res.progress(); full && !end && !x.cutAt.IsZero() && (x.callerState >= callerGone || x.caller == nil) {
		x.state = relay.ResponseCut
	}
	return goOn
}

// hold keeps bytes for the caller until they may be written.
func (x *exchange) hold(p []byte) {
	if x.caller != nil && x.callerState < callerGone {
		x.out = append(x.out, p...)
	}
}

// reserveHeld reserves buffer space for the bytes of the answer that the exchange holds.
// Without space the exchange fails as overloaded. A caller that has got a part of the answer
// gets no more of it, and the answer is recorded as it came.
func (x *exchange) reserveHeld() verdict {
	if x.space.cover(len(x.out) + len(x.partial)) {
		return goOn
	}
	if x.responseStarted {
		x.callerState, x.out = callerPartial, x.out[:0]
		return goOn
	}
	x.out, x.partial = nil, nil
	x.space.release()
	return x.fail(relay.Errorf(relay.CodeOverloaded, "too many answers wait for the store or for their callers; try again in a moment"))
}

// flush writes the bytes that were held.
func (x *exchange) flush() {
	if len(x.out) > 0 {
		x.responseStarted = x.write(x.out) || x.responseStarted
		x.out = x.out[:0]
		x.space.release()
	}
}

// write writes bytes to the caller. It returns false when there is no caller or the caller
// has gone. That does not end the exchange: the answer is still recorded.
func (x *exchange) write(p []byte) bool {
	if x.caller == nil || x.callerState >= callerGone || len(p) == 0 {
		return false
	}
	if x.final != nil && x.final.Framing == relay.FramingClose && !x.responseStarted {
		x.caller.ResetOnCrash()
	}
	for len(p) > 0 {
		piece := p[:min(len(p), writeSize)]
		if _, err := x.caller.Write(piece); err != nil {
			x.callerState, x.out = callerPartial, x.out[:0]
			if x.final != nil {
				x.limitUnreadAnswer()
			}
			return true
		}
		p = p[len(piece):]
	}
	if x.callerState == callerHalfClosed {
		// Had it closed the whole connection, the write would cause a reset, and the next check
		// would see that.
		x.cutAt = time.Time{}
		x.limitUnreadAnswer()
	}
	return true
}

// checkCaller acts on a caller that has left or has closed its sending side.
func (x *exchange) checkCaller(now time.Time) {
	x.checkCallerAt = now.Add(checkCallerEvery)
	switch {
	case x.callerState >= callerGone:
		x.checkCallerAt = time.Time{}
		return
	case x.uploading && x.writeBlocked(now) < checkCallerEvery: // the upload reads, and learns it there
		return
	}
	switch x.caller.Presence() {
	case relay.CallerReset:
		x.callerState, x.out, x.checkCallerAt = callerGone, x.out[:0], time.Time{}
		x.limitUnreadAnswer()
	case relay.CallerHalfClosed: // perhaps for good, perhaps reading on
		x.callerState = callerHalfClosed
		x.limitUnreadAnswer()
	case relay.CallerPresent:
	}
}

// reusable returns for how long the channel may be kept for another request, and whether
// it may be kept at all (ADR 0005). It is called once the request was read to its end.
func (x *exchange) reusable() (time.Duration, bool) {
	q, a := x.head, x.final
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
	case a.Status == 400 || a.Status == 408 || a.Status == 501 || a.Status == 505: // perhaps the request was not understood
	case !reusableMethod(q), x.answeredEarly, x.trailingBytes: // answeredEarly is also set after a failed write
	case hasBody && (a.Status >= 400 || x.caller == nil): // a replay has no caller that could go on
	case x.body != nil && x.body.HasTrailers():
	case x.pooled == nil || !x.pooled.Usable() || !x.att.Pool.MayReuse():
	default:
		if hasBody {
			x.pooled.Owner = x.caller
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
