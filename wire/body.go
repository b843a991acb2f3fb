package wire

import (
	"bytes"

	"relay"
)

// Body finds the end of one message body by its framing. It does not change or copy the bytes of the body.
type Body struct {
	// Tee, if set, gets the decoded body bytes and the framing bytes in the order of transfer; one of
	// the two is empty in each call. Framing bytes are chunk-size lines, the last chunk, trailers and
	// the final empty line. Tee does not get the CRLF after chunk data, except from Stop. The slices
	// are valid during the call only.
	Tee func(decoded, line []byte)

	framing relay.Framing
	done    bool
	stopped bool
	failed  *relay.Error
	left    int64 // bytes of Content-Length or of the current chunk that have not arrived yet
	decoded int64
	chunk   chunk
}

// NewBody returns the parser of the body that h announces: a strict one for requests, a
// lenient one for responses.
func NewBody(h *Head) *Body {
	b := &Body{framing: h.Framing, left: h.Length, chunk: chunk{strict: h.Status == 0}}
	b.done = b.framing == relay.FramingNone || b.framing == relay.FramingLength && b.left == 0
	return b
}

// Feed parses the next wire bytes. The first n of them belong to the body. end means that the body is
// complete, so that p[n:] belongs to the next message. A body that is empty according to its framing
// ends at Feed(nil). Errors are *relay.Error request-malformed or local-malformed. After an error
// p[n:] must not be forwarded.
func (b *Body) Feed(p []byte) (n int, end bool, err error) {
	switch {
	case b.failed != nil:
		return 0, false, b.failed
	case b.done:
		return 0, true, nil
	case b.framing == relay.FramingClose:
		b.data(p)
		return len(p), false, nil
	case b.framing == relay.FramingLength:
		n = b.passData(p)
		b.done = b.left == 0
		return n, b.done, nil
	}
	for n < len(p) && !b.done {
		used, e := b.chunked(p[n:])
		n += used
		if e != nil {
			b.failed = e
			return n, false, e
		}
	}
	return n, b.done, nil
}

// EOF tells the parser that the peer has closed its side. It returns nil if the body is complete,
// else an *relay.Error caller-gone or local-closed.
func (b *Body) EOF() error {
	switch {
	case b.failed != nil:
		return b.failed
	case b.done || b.framing == relay.FramingClose:
		return nil
	case b.chunk.strict:
		return relay.Errorf(relay.CodeCallerGone, "the caller ended the connection inside its request body; send it again")
	}
	return relay.Errorf(relay.CodeLocalClosed, "the local server ended the connection inside its answer; look at its log")
}

// Stop tells the parser that no more bytes follow; a second call does nothing. If the last bytes were
// (part of) the CRLF after chunk data, Tee gets them as a line, because Rebuild needs them.
func (b *Body) Stop() {
	end := "\r\n"
	switch c := &b.chunk; {
	case b.done || b.stopped || b.Tee == nil || b.framing != relay.FramingChunked:
		return
	case c.state == dataLF:
		end = "\r"
	case c.state != atSize || c.line > 0 || b.decoded == 0:
		return
	}
	b.stopped = true
	b.Tee(nil, []byte(end))
}

// HasTrailers reports, once the body has ended, whether trailer lines followed its last chunk.
func (b *Body) HasTrailers() bool { return b.chunk.trailers > len("\r\n") }

// chunked parses the next bytes: chunk data, the CRLF after it, or bytes of a line.
func (b *Body) chunked(p []byte) (int, *relay.Error) {
	c := &b.chunk
	switch c.state {
	case inData:
		n := b.passData(p)
		if b.left == 0 {
			c.state = dataCR
		}
		return n, nil
	case dataCR, dataLF:
		return c.dataEnd(p)
	}
	n := 0
	for n < len(p) && c.state != inData && c.state != lastEnd {
		run, why := c.step(p[n:])
		n += run
		c.framed += int64(run)
		if why == "" && c.strict && c.framed > maxFramed+b.decoded/framedShare {
			why = "its chunks are so small that most of it is not data"
		}
		if why != "" {
			return 0, c.refuse(why)
		}
	}
	b.left, b.done = c.size, c.state == lastEnd
	if b.Tee != nil {
		b.Tee(nil, p[:n])
	}
	return n, nil
}

// passData passes the bytes of p that belong to the current chunk or body to Tee.
func (b *Body) passData(p []byte) int {
	n := int(min(int64(len(p)), b.left))
	b.left -= int64(n)
	b.data(p[:n])
	return n
}

func (b *Body) data(p []byte) {
	b.decoded += int64(len(p))
	if b.Tee != nil && len(p) > 0 {
		b.Tee(p, nil)
	}
}

// dataEnd parses the CRLF after chunk data, or half of it.
func (c *chunk) dataEnd(p []byte) (int, *relay.Error) {
	want := []byte("\r\n")[c.state-dataCR:]
	n := min(len(p), len(want))
	if !bytes.Equal(p[:n], want[:n]) {
		return 0, c.refuse("a chunk is not followed by CRLF")
	}
	c.state += chunkState(n)
	if n == len(want) {
		c.state, c.digits, c.size, c.line = atSize, 0, 0, 0
	}
	return n, nil
}
