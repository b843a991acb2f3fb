package sshgate

import (
	"log/slog"
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

// fills serves the reads of a relay.Channel. x/crypto goes on taking what the peer sends
// between two Fills, up to its window. So a channel without a Fill for a while reads one
// piece ahead; when something came, the bytes that may follow are reserved in the budget
// until the next Fill. An idle peer reserves nothing.
type fills struct {
	srv    *Server
	log    *slog.Logger
	owner  int64                   // account that owns the alias
	read   func([]byte) relay.Fill // one read of the channel
	end    func() error            // closes the channel
	panics func(where string)      // deferred in goroutines
	filled chan relay.Fill

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

// startFills completes p once its functions are set.
func (p *fills) startFills() {
	p.filled = make(chan relay.Fill, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(pauseAfter, p.paused)
}

// Fill implements relay.Channel.
func (p *fills) Fill(buf []byte) {
	f, known, read := p.resume(buf)
	switch {
	case known:
		p.filled <- f
	case read:
		go p.fill(buf)
	}
}

// Filled implements relay.Channel.
func (p *fills) Filled() <-chan relay.Fill { return p.filled }

// fill serves one Fill. It ends with the channel or, at the latest, with the connection.
func (p *fills) fill(buf []byte) {
	defer p.panics("read")
	f := p.read(buf)
	p.mu.Lock()
	p.filling = false
	if f.Err == nil && !p.closed {
		p.timer.Reset(pauseAfter)
	}
	p.mu.Unlock()
	p.filled <- f
}

// paused is called when the channel has had no Fill for pauseAfter.
func (p *fills) paused() {
	defer p.panics("pause")
	p.mu.Lock()
	if p.filling || p.closed || p.ahead || p.err != nil {
		p.mu.Unlock()
		return
	}
	if len(p.buf) == 0 {
		p.ahead = true
		p.mu.Unlock()
		buf := make([]byte, aheadPiece)
		f := p.read(buf)
		p.mu.Lock()
		p.ahead, p.buf, p.err = false, buf[:f.N], f.Err
	}
	if want := p.want; want != nil { // the Fill that came meanwhile
		p.want = nil
		f := p.takeAhead(want)
		p.mu.Unlock()
		p.filled <- f
		return
	}
	if len(p.buf) > 0 && p.err == nil && !p.closed {
		p.reserved = p.srv.o.Budget.Reserve(p.owner, pausedBytes)
		p.dropped = !p.reserved
	}
	dropped := p.dropped
	p.mu.Unlock()
	if dropped {
		p.log.Warn("channel cut: no buffer space for an answer that its caller does not take", "account_id", p.owner)
		p.srv.metrics.channelsCut.Inc()
		_ = p.end()
	}
}

// takeAhead serves a Fill with what was read ahead; the caller holds mu.
func (p *fills) takeAhead(buf []byte) relay.Fill {
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
func (p *fills) resume(buf []byte) (f relay.Fill, known, read bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling = true
	p.timer.Stop()
	p.releaseLocked()
	switch {
	case p.dropped:
		return relay.Fill{Err: relay.ErrOverBudget}, true, false
	case p.ahead:
		p.want = buf
		return relay.Fill{}, false, false
	case len(p.buf) > 0 || p.err != nil:
		return p.takeAhead(buf), true, false
	}
	return relay.Fill{}, false, true
}

// endFills gives back what the channel has reserved: it is being closed, and what its peer
// sends is discarded.
func (p *fills) endFills() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.buf = true, nil
	if p.timer != nil {
		p.timer.Stop()
	}
	p.releaseLocked()
}

func (p *fills) releaseLocked() {
	if p.reserved {
		p.reserved = false
		p.srv.o.Budget.Release(p.owner, pausedBytes)
	}
}
