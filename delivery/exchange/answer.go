package exchange

import (
	"bytes"
	"errors"
	"time"

	"relay"
	"relay/wire"
)

// answer is the response of the local server, as far as it has arrived. The type does no I/O.
type answer struct {
	request *wire.Head // the request that is answered
	maxHead int64

	interim     [][]byte // heads of 1xx responses
	interimSize int64
	partial     []byte // an incomplete head
	refused     []byte // the beginning of a head that was malformed
	final       *wire.Head
	body        *wire.Body
	rec         recording
	state       string // the state of the response once it has ended; "" = it has not ended
	trailing    bool   // bytes came after the end of the response
	early       bool   // the response began before the whole request was written
}

// maxRefusedShown bounds the recorded part of the head of a refused response.
const maxRefusedShown = 1 << 10

// head parses the next head, from the bytes that arrived before and the new bytes p. It returns nil if
// more bytes are needed, else the head and the bytes after that head.
func (a *answer) head(p []byte) (h *wire.Head, rest []byte, err *relay.Error) {
	limits := wire.Limits{Head: int(a.maxHead), Seen: len(a.partial)}
	if len(a.partial) > 0 {
		a.partial = append(a.partial, p...)
		p = a.partial
	}
	h, n, e := wire.Response(p, limits, a.request)
	switch {
	case errors.Is(e, wire.ErrMore):
		a.partial = append(a.partial[:0], p...)
		return nil, nil, nil
	case e != nil:
		a.noteRefused(p)
		return nil, nil, relay.AsError(e)
	}
	h.Raw = bytes.Clone(h.Raw)
	a.partial = nil
	return h, p[n:], nil
}

// noteRefused keeps the beginning of a refused response, for the record.
func (a *answer) noteRefused(head []byte) {
	if end := wire.HeadEnd(head, 0); end >= 0 {
		head = head[:end]
	}
	a.refused = bytes.Clone(head[:min(len(head), maxRefusedShown)])
}

// addInterim notes a 1xx response.
func (a *answer) addInterim(h *wire.Head) *relay.Error {
	a.interimSize += int64(len(h.Raw))
	if len(a.interim) == maxInterim || a.maxHead > 0 && a.interimSize > a.maxHead {
		return relay.Errorf(relay.CodeLocalMalformed, "the local server sent too many interim answers (1xx)")
	}
	a.interim = append(a.interim, h.Raw)
	return nil
}

// begin notes the head of the final response; rec records its body.
func (a *answer) begin(h *wire.Head) {
	a.final = h
	if h.Framing == relay.FramingLength {
		a.rec.expect = h.Length
	}
	switch {
	case h.Status == 101:
		a.state = relay.ResponseUpgraded
	case h.Framing == relay.FramingNone:
		a.end()
	default:
		a.body = wire.NewBody(h)
		a.body.Tee = a.rec.tee
	}
}

// end notes that the response has ended as its framing requires.
func (a *answer) end() {
	a.rec.end()
	a.state = relay.ResponseComplete
}

// feed parses bytes of the body. n is the number of those that belong to the body, and ended means that the
// body is complete.
func (a *answer) feed(p []byte) (n int, ended bool, err error) {
	a.rec.waitForParts(len(p))
	n, ended, err = a.body.Feed(p)
	if ended {
		a.end()
		a.trailing = n < len(p)
	}
	return n, ended, err
}

// endsByClose reports whether the end of the connection is the end of the response.
func (a *answer) endsByClose() bool { return a.body != nil && a.body.EOF() == nil }

// reusable reports whether the connection may be kept for another request, and for how long (ADR
// 0005). It assumes that the whole request was sent. trailers means that the request had trailer lines, and
// served that the response has a reader.
func (a *answer) reusable(trailers, served bool) (time.Duration, bool) {
	q, f := a.request, a.final
	// This stands for no limit, because the pool of channels has a smaller limit of its own.
	limit := 24 * time.Hour
	if t := f.KeepAliveTimeout; t >= 0 {
		limit = time.Duration(t) * time.Second / 2
	}
	hasBody := q.Framing != relay.FramingNone
	switch {
	case limit <= 0, a.state != relay.ResponseComplete:
	case q.Minor == 0 || f.Minor == 0 || q.Close || f.Close || f.Sloppy:
	case q.Upgrade || q.Expect || q.Auth || f.Auth || q.ProxyConnection || f.ProxyConnection:
	case f.Framing != relay.FramingLength && f.Framing != relay.FramingChunked:
	case f.Status == 400 || f.Status == 408 || f.Status == 501 || f.Status == 505:
		// With these statuses the local server may not have understood the request.
	case !reusableMethod(q), a.early, a.trailing:
		// early is set after a failed write, too: the local server may then not have the whole request.
	case hasBody && (f.Status >= 400 || !served):
		// If the local server has not read the body, it takes the body for the next request. Only the same
		// caller may therefore send that next request, and a replay has no caller. ADR 0005 also excludes a
		// status of 400 or above.
	case trailers:
	default:
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
