package exchange

import (
	"slices"
	"time"

	"relay"
	"relay/wire"
)

const (
	// checkCallerEvery is the interval at which an exchange checks that its caller is still connected.
	checkCallerEvery = time.Second
	// streamCutWait is the longest silence of a stream after its caller has closed its sending side,
	// which may mean that the caller has left. Each write to the caller starts the time anew.
	streamCutWait = 800 * time.Millisecond
	// lastCutWait is the time for which an exchange waits for the end of a stream after its reader has
	// left.
	lastCutWait = 100 * time.Millisecond
)

// output passes the response to its reader. It holds the bytes until the event is stored, and knows
// whether the reader still takes bytes. A response without a reader is treated as one whose reader has
// left.
type output struct {
	sink   Sink // nil = the response has no reader
	reader reader
	held   []byte      // bytes that wait until the event is stored
	space  reservation // buffer space for held, and for a part of a head

	started bool // a byte of the final answer was sent to the reader

	// Set by begin.
	final   bool
	stream  bool          // the answer may continue without a limit while a reader takes it
	closes  bool          // the answer ends with the connection, towards the reader as well
	timeout time.Duration // the response timeout; 0 = none
	cutAt   time.Time     // when an answer without a reader is cut; zero = never
	checkAt time.Time     // next check of the reader; zero = none
}

// reader is the state of the reader of a response.
type reader uint8

const (
	readerTakes      reader = iota
	readerHalfClosed        // the reader has closed its sending side, and may still read
	readerLeft              // the reader takes no more bytes
	readerCut               // the reader has not received all bytes that were written to it
)

// reads reports whether a reader still takes the response.
func (o *output) reads() bool { return o.sink != nil && o.reader < readerLeft }

// leave notes that the reader takes no more bytes.
func (o *output) leave(how reader) {
	o.reader, o.held = max(o.reader, how), nil
}

// begin prepares for the final response.
func (o *output) begin(h *wire.Head, timeout time.Duration) {
	o.final, o.closes, o.timeout = true, h.Framing == relay.FramingClose, timeout
	leftBefore := false // the reader had left or closed its sending side before the head came; then an answer that is chunked, or ends with the connection, does not count as a stream
	if o.sink != nil && h.Framing != relay.FramingNone && h.Framing != relay.FramingLength {
		leftBefore = o.reader >= readerLeft || o.sink.Presence() != relay.CallerPresent
	}
	o.stream = o.sink != nil && isStream(h, leftBefore)
	if o.reads() {
		// Nothing reads from the caller now. While the local server is silent, only this check notices
		// that the caller has left, because there may be no further write.
		o.checkAt = time.Now().Add(checkCallerEvery)
	} else {
		o.limit()
	}
	if o.reads() {
		// Clip makes a later append copy the bytes, because the record uses them as well.
		o.held = slices.Clip(h.Raw)
	}
}

// isStream reports whether the response may be endless. The exchange does not wait for the end of such
// a response once its reader has left.
func isStream(h *wire.Head, leftBefore bool) bool {
	if h.Framing == relay.FramingNone {
		return false
	}
	if h.Framing != relay.FramingLength && !leftBefore {
		return true
	}
	return h.EventStream
}

// limit sets a time limit for a response whose reader has left or may have left.
func (o *output) limit() {
	if !o.final || !o.cutAt.IsZero() {
		return
	}
	t := o.timeout
	switch {
	case o.stream && o.reader >= readerLeft:
		t = lastCutWait
	case o.stream:
		t = streamCutWait
	case t <= 0:
		t = defaultResponseTimeout
	}
	o.cutAt = time.Now().Add(t)
}

// hold keeps bytes for the reader until they may be written.
func (o *output) hold(p []byte) {
	if o.reads() {
		o.held = append(o.held, p...)
	}
}

// flush writes the held bytes.
func (o *output) flush() {
	if len(o.held) == 0 {
		return
	}
	p := o.held
	o.held = nil
	o.started = o.write(p) || o.started
	o.space.release()
}

// write writes bytes to the caller. It returns false if there is no caller, or the caller has left. The
// exchange then continues, and the response is recorded.
func (o *output) write(p []byte) bool {
	if !o.reads() || len(p) == 0 {
		return false
	}
	if o.closes && !o.started {
		o.sink.ResetOnCrash()
	}
	for len(p) > 0 {
		piece := p[:min(len(p), writeSize)]
		if _, err := o.sink.Write(piece); err != nil {
			o.leave(readerCut)
			o.limit()
			return true
		}
		p = p[len(piece):]
	}
	if o.reader == readerHalfClosed {
		// A caller that has closed its whole connection answers this write with a reset, and the next check
		// sees the reset.
		o.cutAt = time.Time{}
		o.limit()
	}
	return true
}

// check finds out whether the reader has left or has closed its sending side, and limits the time of the
// response in these cases.
func (o *output) check(now time.Time) {
	o.checkAt = now.Add(checkCallerEvery)
	if !o.reads() {
		o.checkAt = time.Time{}
		return
	}
	switch o.sink.Presence() {
	case relay.CallerReset:
		o.leave(readerLeft)
		o.checkAt = time.Time{}
		o.limit()
	case relay.CallerHalfClosed:
		// The caller may have left, or may still read.
		o.reader = readerHalfClosed
		o.limit()
	case relay.CallerPresent:
	}
}

// abort resets the connection of the reader.
func (o *output) abort() {
	if o.sink != nil {
		o.sink.Abort()
		o.reader = max(o.reader, readerLeft)
	}
}
