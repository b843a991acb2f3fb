package delivery

import (
	"bytes"
	"errors"
	"time"

	"relay"
	"relay/wire"
)

// take reads bytes of the local server: heads first, then the body.
func (x *exchange) take(p []byte) verdict {
	if x.final == nil {
		rest, v := x.heads(p)
		if v != goOn || x.final == nil {
			return v
		}
		p = rest
	}
	switch {
	case x.state == relay.ResponseUpgraded:
		x.keep(p)
		return goOn
	case x.done:
		x.extra = x.extra || len(p) > 0
		return goOn
	}
	return x.content(p)
}

// heads reads response heads up to the final one and gives what is behind it.
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
			return nil, goOn
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

// onInterim passes a 1xx on at once: it promises nothing.
func (x *exchange) onInterim(h *wire.Head) verdict {
	x.interimN += len(h.Raw)
	if len(x.interim) == mostInterim || x.d.opt.MaxHead > 0 && int64(x.interimN) > x.d.opt.MaxHead {
		return x.fail(relay.Errorf(relay.CodeLocalMalformed, "the local server sent too many interim answers (1xx)"))
	}
	x.interim = append(x.interim, h.Raw)
	if h.Status == 100 {
		x.continued = true
		x.letGo()
	}
	x.tellUpload(true)
	if x.req.caller != nil && x.req.head.Minor > 0 {
		x.write(h.Raw)
	}
	return goOn
}

// tellUpload lets a body go that waits for 100 Continue, or keeps it back.
func (x *exchange) tellUpload(yes bool) {
	if x.goAhead == nil {
		return
	}
	select {
	case x.goAhead <- yes:
	default:
	}
}

// begin starts the final answer.
func (x *exchange) begin(h *wire.Head) {
	x.final = h
	x.tellUpload(false)
	x.letGo()
	if x.req.caller == nil || x.silent {
		x.listenOnly()
	} else {
		x.watch()
	}
	expect := int64(0)
	if h.Framing == relay.FramingLength {
		expect = h.Length
	}
	x.res.reset(x.d.store, x.event.ID, x.attempt.N, x.d.opt.MaxResponseCapture, expect)
	x.keep(h.Raw)
	switch {
	case h.Status == 101:
		x.done, x.extra, x.state = true, true, relay.ResponseUpgraded
	case h.Framing == relay.FramingNone:
		x.over()
	default:
		x.body = wire.NewBody(h)
		x.body.Tee = x.res.tee
	}
}

// over notes that the answer has come to its end as framed.
func (x *exchange) over() {
	x.res.end()
	x.done, x.state = true, relay.ResponseComplete
}

// listenOnly bounds an answer that nobody reads.
func (x *exchange) listenOnly() {
	if x.cutAt.IsZero() {
		t := x.patience
		if t <= 0 {
			t = defaultReply
		}
		x.cutAt = time.Now().Add(t)
	}
}

// content takes body bytes. What is behind the end is never passed on.
func (x *exchange) content(p []byte) verdict {
	x.res.room(len(p))
	n, end, err := x.body.Feed(p)
	if end {
		x.over()
		x.extra = n < len(p)
	}
	if x.durable && !x.done && err == nil {
		x.flush()
		x.begun = x.write(p[:n]) || x.begun
	} else {
		x.keep(p[:n])
	}
	switch e := x.res.settle(); {
	case e != nil:
		return x.fail(storeError(e))
	case err != nil && x.begun:
		x.state = relay.ResponseTruncated
		return x.fail(relay.AsError(err))
	case err != nil:
		x.final = nil // no usable answer
		return x.fail(relay.AsError(err))
	}
	if _, full := x.res.progress(); full && !x.cutAt.IsZero() && !x.done && (x.silent || x.req.caller == nil) {
		x.cutShort()
	}
	return goOn
}

// keep holds output back.
func (x *exchange) keep(p []byte) {
	if x.req.caller != nil && !x.silent {
		x.out = append(x.out, p...)
	}
}

// flush writes what was held back.
func (x *exchange) flush() {
	if len(x.out) > 0 {
		x.begun = x.write(x.out) || x.begun
		x.out = x.out[:0]
	}
}

// write gives bytes to the caller; false when there is nobody to take them. One who
// went away does not end the exchange: the answer is still recorded.
func (x *exchange) write(p []byte) bool {
	if x.req.caller == nil || x.silent || len(p) == 0 {
		return false
	}
	for len(p) > 0 {
		piece := p[:min(len(p), writePiece)]
		if _, err := x.req.caller.Write(piece); err != nil {
			x.silent, x.short = true, true
			x.out = x.out[:0]
			if x.final != nil {
				x.listenOnly()
			}
			return true
		}
		p = p[len(piece):]
	}
	x.taken()
	return true
}

// reusable tells for how long the channel may be kept for another request, under all
// the guards that make it safe. It is called once the request has been read to its end.
func (x *exchange) reusable() (time.Duration, bool) {
	q, a := x.req.head, x.final
	limit := reuseLimit
	if t := a.KeepAliveTimeout; t >= 0 {
		limit = min(limit, time.Duration(t)*time.Second/2)
	}
	hasBody := q.Framing != relay.FramingNone
	switch {
	case limit <= 0, x.alias.Settings.FreshConnections, x.state != relay.ResponseComplete:
	case q.Minor == 0 || a.Minor == 0 || q.Close || a.Close || a.Sloppy:
	case q.Upgrade || q.Expect || q.Auth || a.Auth || q.ProxyConnection || a.ProxyConnection:
	case a.Framing != relay.FramingLength && a.Framing != relay.FramingChunked:
	case !reusableMethod(q), x.early, x.extra, x.deaf:
	case hasBody && (a.Status >= 400 || x.req.caller == nil): // a replay has no caller that could go on
	case x.req.body != nil && x.req.body.HasTrailers():
	case x.line == nil || x.line.asked || x.line.shut || !x.hold.pool.mayReuse():
	default:
		if hasBody {
			x.line.owner = x.req.caller
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

// distrust ends reuse for the tunnel when a reused channel was answered as if the
// request had not been understood.
func (x *exchange) distrust() {
	if !x.reused || x.final == nil {
		return
	}
	switch x.final.Status {
	case 400, 408, 501, 505:
		x.hold.pool.stopReuse()
	}
}
