package exchange

import (
	"crypto/sha256"
	"hash"
	"slices"
	"sync"

	"relay"
	"relay/budget"
	"relay/waits"
	"relay/wire"
)

// recording collects the body of one message while it is transferred: decoded bytes and chunk lines. A
// body larger than relay.InlineBody is passed to the journal in parts while it arrives, so that memory
// stays bounded. One goroutine adds bytes; others may read.
type recording struct {
	journal Journal
	id      relay.ID
	n       int   // the number of the message, as in Journal.Chunk: 0 = the request, else the number of the attempt
	limit   int64 // decoded bytes that are kept; 0 = all
	expect  int64 // announced size of the body in decoded bytes; 0 = unknown
	space   reservation
	over    <-chan struct{} // closed when no exchange may wait for the journal any more

	mu        sync.Mutex
	data      []byte // inline body, or the part in progress
	first     []byte // the first part that was passed to the journal
	lines     []byte
	parts     int
	stored    int64 // number of decoded bytes in the parts that were passed to the journal
	size      int64
	sum       hash.Hash // set once the first part is full or limit is reached
	pending   []*relay.Ticket
	overLimit bool // more than limit bytes arrived
	whole     bool
	failed    error // why the recording has failed: a part cannot be stored, or the budget has no space for data
}

// freeHeld is the number of bytes that may be held without a reservation.
const freeHeld = 16 << 10

// reservation is buffer space of the budget for bytes that wait for the caller, the local server or the store.
type reservation struct {
	budget  *budget.Budget
	account int64 // the account whose share of the budget is used
	bytes   int64
}

// cover reserves space for n bytes in total. It returns false if there is not enough.
func (r *reservation) cover(n int) bool {
	more := int64(n) - r.bytes
	if n <= freeHeld || more <= 0 {
		return true
	}
	if !r.budget.Reserve(r.account, more) {
		return false
	}
	r.bytes += more
	return true
}

func (r *reservation) release() {
	r.budget.Release(r.account, r.bytes)
	r.bytes = 0
}

// tee is the callback of wire.Body: it records the decoded bytes and the chunk lines.
func (r *recording) tee(decoded, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(line) > 0 {
		switch {
		case r.overLimit:
		case len(r.lines)+len(line) > maxFramingBytes:
			r.overLimit = true
			r.startSum(nil)
		default:
			r.lines = append(r.lines, line...)
		}
		return
	}
	r.size += int64(len(decoded))
	if r.sum != nil {
		r.sum.Write(decoded)
	}
	keep := decoded
	switch room := r.limit - r.stored - int64(len(r.data)); {
	case r.overLimit:
		keep = nil
	case r.limit > 0 && int64(len(keep)) > room:
		keep = keep[:room]
		r.startSum(decoded)
		r.overLimit = true
	}
	for len(keep) > 0 {
		keep = keep[r.add(keep):]
	}
}

// startSum begins the running hash. decoded holds the next bytes, which are not in data yet.
func (r *recording) startSum(decoded []byte) {
	if r.sum == nil {
		r.sum = sha256.New()
		r.sum.Write(r.data)
		r.sum.Write(decoded)
	}
}

// add adds bytes up to the end of the current part, and returns their number.
func (r *recording) add(p []byte) int {
	n := len(p)
	switch {
	case r.parts > 0 || len(r.data)+n > relay.InlineBody:
		if r.sum == nil {
			r.startSum(p)
		}
		if cap(r.data) < relay.BodyPart {
			r.data = append(make([]byte, 0, relay.BodyPart), r.data...)
		}
		n = min(n, relay.BodyPart-len(r.data))
	case r.data == nil && r.expect > 0:
		// The announced size may be wrong, so the buffer is bounded.
		r.data = make([]byte, 0, max(int64(n), min(r.expect, 64<<10, 4*int64(n))))
	}
	r.data = append(r.data, p[:n]...)
	if !r.space.cover(cap(r.data)) && r.failed == nil {
		r.failed = errNoBuffer
	}
	if len(r.data) == relay.BodyPart && (r.parts > 0 || n < len(p)) {
		r.flush()
	}
	return n
}

var errNoBuffer = relay.Errorf(relay.CodeOverloaded, "the memory for requests and responses in progress is used up; retry in a moment")

// release drops the held bytes, and their reservation.
func (r *recording) release() {
	r.data, r.first = nil, nil
	r.space.release()
}

// flush passes the current part to the journal, which owns its buffer from then on.
func (r *recording) flush() {
	r.pending = append(r.pending, r.journal.Chunk(r.id, r.n, r.parts, r.data))
	if r.parts == 0 {
		r.first = r.data
	}
	r.parts++
	r.stored += int64(len(r.data))
	r.data = nil
}

// waitForParts waits until the journal has resolved enough parts that n more bytes leave at most two
// unresolved. The recording fails if the store does not resolve a part within partWait.
func (r *recording) waitForParts(n int) {
	r.mu.Lock()
	var wait *relay.Ticket
	parts := len(r.pending)
	if len(r.data)+n >= relay.BodyPart && parts > 1 && r.failed == nil {
		wait = r.pending[parts-2]
	}
	r.mu.Unlock()
	if parts == 0 {
		return
	}
	if wait != nil {
		late, stop := waits.After(partWait)
		select {
		case <-wait.Done():
		case <-late:
		case <-r.over:
		}
		stop()
		if !closed(wait.Done()) {
			r.mu.Lock()
			r.failed = ErrStoreTimeout
			r.mu.Unlock()
		}
	}
	r.partsError()
}

// partsError returns the reason why no more of the body can be recorded; nil = it can.
func (r *recording) partsError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = slices.DeleteFunc(r.pending, func(t *relay.Ticket) bool {
		if !closed(t.Done()) {
			return false
		}
		if t.Err() != nil && r.failed == nil {
			r.failed = t.Err()
		}
		return true
	})
	return r.failed
}

// end marks the body as complete and passes its last part to the journal.
func (r *recording) end() {
	r.stop(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = true
}

// stop passes the last part of an incomplete body to the journal, and adds no more bytes. framing is
// the parser of the body, which is stopped too; nil = there is none.
func (r *recording) stop(framing *wire.Body) {
	if framing != nil {
		framing.Stop()
	}
	r.waitForParts(relay.BodyPart)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts > 0 && len(r.data) > 0 {
		r.flush()
	}
}

func (r *recording) isWhole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whole
}

// progress returns the number of decoded bytes that have arrived, and whether more bytes arrived than
// are kept.
func (r *recording) progress() (size int64, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size, r.overLimit
}

// cost returns the number of bytes that the message uses in a queue, without its head.
func (r *recording) cost() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size + int64(len(r.lines))
}

// message returns the message as far as it has arrived. It shares only bytes that do not change any
// more, so that the recording may continue.
func (r *recording) message(head []byte, framing relay.Framing, state string) relay.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := relay.Message{Head: head, Framing: framing, Lines: r.lines[:len(r.lines):len(r.lines)]}
	b := &m.Body
	b.Size, b.State, b.Parts, b.Stored = r.size, state, r.parts, r.stored
	if r.parts == 0 {
		b.Data = r.data[:len(r.data):len(r.data)]
		b.Stored = int64(len(r.data))
	}
	if r.sum == nil {
		b.SHA256 = sha256.Sum256(r.data)
	} else {
		// Sum(b.SHA256[:0]) would make m escape to the heap.
		copy(b.SHA256[:], r.sum.Sum(nil))
	}
	return m
}
