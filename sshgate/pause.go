package sshgate

import (
	"sync"
	"time"

	"relay"
)

const (
	// pauseAfter is the time without a Fill after which a channel counts as paused.
	// What a peer can send within it is not counted.
	pauseAfter = 100 * time.Millisecond
	// pausedBytes is what a paused channel may hold: x/crypto's window, which is a
	// constant, and what the exchange keeps back.
	pausedBytes = 2<<20 + 256<<10
)

// pause is the state of a channel between two Fills. x/crypto goes on taking what the
// peer sends then, up to its window. So a channel that is paused for a while reads one
// piece ahead; when something came, the bytes that may follow are reserved in the
// budget until the next Fill. An idle peer reserves nothing.
type pause struct {
	mu       sync.Mutex
	timer    *time.Timer
	filling  bool // a Fill is outstanding
	closed   bool
	ahead    bool   // a read ahead is under way
	want     []byte // of a Fill that came meanwhile
	buf      []byte // what was read ahead and not yet taken
	err      error  // what comes after buf
	reserved bool
	dropped  bool // there was no space in the budget
}

// aheadPiece is the size of the read ahead.
const aheadPiece = 4 << 10

// paused is called when the channel has had no Fill for pauseAfter.
func (h *channel) paused() {
	defer h.c.recovered("pause")
	p := &h.pause
	p.mu.Lock()
	if p.filling || p.closed || p.ahead || p.err != nil {
		p.mu.Unlock()
		return
	}
	if len(p.buf) == 0 {
		p.ahead = true
		p.mu.Unlock()
		buf := make([]byte, aheadPiece)
		f := h.readOnce(buf)
		p.mu.Lock()
		p.ahead, p.buf, p.err = false, buf[:f.N], f.Err
	}
	if want := p.want; want != nil { // the Fill that came meanwhile
		p.want = nil
		f := h.takeAhead(want)
		p.mu.Unlock()
		h.filled <- f
		return
	}
	if len(p.buf) > 0 && p.err == nil && !p.closed {
		p.reserved = h.c.srv.o.Budget.Reserve(h.owner, pausedBytes)
		p.dropped = !p.reserved
	}
	dropped := p.dropped
	p.mu.Unlock()
	if dropped {
		h.c.log.Warn("channel cut: no buffer space for an answer that its caller does not take", "account_id", h.owner)
		h.c.srv.metrics.channelsCut.Inc()
		_ = h.Close()
	}
}

// takeAhead serves a Fill with what was read ahead; the caller holds pause.mu.
func (h *channel) takeAhead(buf []byte) relay.Fill {
	p := &h.pause
	f := relay.Fill{N: copy(buf, p.buf)}
	if p.buf = p.buf[f.N:]; len(p.buf) == 0 {
		f.Err, p.buf, p.err = p.err, nil, nil
	}
	p.filling = false
	if f.Err == nil && !p.closed {
		p.timer.Reset(pauseAfter)
	}
	return f
}

// resume ends the pause for a Fill. It returns the result of the Fill where that is known,
// and whether the caller has to read: a read ahead that is under way will serve the Fill.
func (h *channel) resume(buf []byte) (f relay.Fill, known, read bool) {
	p := &h.pause
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling = true
	p.timer.Stop()
	h.releaseLocked()
	switch {
	case p.dropped:
		return relay.Fill{Err: relay.ErrOverBudget}, true, false
	case p.ahead:
		p.want = buf
		return relay.Fill{}, false, false
	case len(p.buf) > 0 || p.err != nil:
		return h.takeAhead(buf), true, false
	}
	return relay.Fill{}, false, true
}

// endPause gives back what the channel has reserved: it is being closed, and what its
// peer sends is discarded.
func (h *channel) endPause() {
	p := &h.pause
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.buf = true, nil
	if p.timer != nil {
		p.timer.Stop()
	}
	h.releaseLocked()
}

func (h *channel) releaseLocked() {
	if h.pause.reserved {
		h.pause.reserved = false
		h.c.srv.o.Budget.Release(h.owner, pausedBytes)
	}
}
