package sshgate

import (
	"io"
	"log/slog"
	"sync"
	"time"

	"relay"
	"relay/budget"
)

const (
	// pauseAfter is the time without a Fill after which a channel counts as paused.
	// What a peer can send within it is not counted.
	pauseAfter = 100 * time.Millisecond
	// pausedBytes is what a paused channel may hold: x/crypto's window, which is a
	// constant, and what the exchange keeps back.
	pausedBytes = 2<<20 + 256<<10
)

// fills serves the reads and the end of a relay.Channel. x/crypto goes on taking what the
// peer sends between two Fills, up to its window. So a channel without a Fill for a while
// reads one piece ahead; when something came, the bytes that may follow are reserved in the
// budget until the next Fill. An idle peer reserves nothing.
type fills struct {
	srv     *Server
	log     *slog.Logger
	owner   int64                   // account that owns the alias
	panics  func(where string)      // deferred in goroutines
	read    func([]byte) relay.Fill // one read of the channel
	end     func() error            // closes the channel
	filled  chan relay.Fill
	closing sync.Once

	mu       sync.Mutex
	timer    *time.Timer
	filling  bool // a Fill is outstanding
	closed   bool
	ahead    bool   // a read ahead is under way
	want     []byte // of a Fill that came meanwhile
	buf      []byte // what was read ahead and not yet taken
	err      error  // what comes after buf; budget.ErrOver where there was no space in the budget
	reserved bool
}

// aheadPiece is the size of the read ahead.
const aheadPiece = 4 << 10

// startFills completes p.
func (p *fills) startFills(read func([]byte) relay.Fill, end func() error) {
	p.read, p.end, p.filled = read, end, make(chan relay.Fill, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(pauseAfter, p.paused)
}

// Filled implements relay.Channel.
func (p *fills) Filled() <-chan relay.Fill { return p.filled }

// Fill implements relay.Channel. It ends the pause.
func (p *fills) Fill(buf []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling = true
	p.timer.Stop()
	p.releaseLocked()
	switch {
	case p.ahead: // the read ahead will serve it
		p.want = buf
	case len(p.buf) > 0 || p.err != nil:
		p.takeAhead(buf)
	default:
		p.srv.work.Go(func() { // ends with the channel or, at the latest, with the connection
			defer p.panics("read")
			f := p.read(buf)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.deliver(f)
		})
	}
}

// takeAhead serves a Fill with what was read ahead; the caller holds mu.
func (p *fills) takeAhead(buf []byte) {
	f := relay.Fill{N: copy(buf, p.buf)}
	if p.buf = p.buf[f.N:]; len(p.buf) == 0 {
		f.Err, p.buf, p.err = p.err, nil, nil
	}
	p.deliver(f)
}

// deliver ends the Fill that is outstanding; the caller holds mu.
func (p *fills) deliver(f relay.Fill) {
	p.filling = false
	if f.Err == nil && !p.closed {
		p.timer.Reset(pauseAfter)
	}
	p.filled <- f // it has space: no other Fill is outstanding
}

// paused is called when the channel has had no Fill for pauseAfter. A call that has waited for
// mu while a Fill was served comes too early, and another one follows it.
func (p *fills) paused() {
	defer p.panics("pause")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filling || p.closed || p.ahead || p.err != nil || p.reserved {
		return
	}
	if len(p.buf) == 0 {
		p.readAhead()
	}
	if want := p.want; want != nil { // the Fill that came meanwhile
		p.want = nil
		p.takeAhead(want)
	} else if len(p.buf) > 0 && p.err == nil && !p.closed {
		if p.reserved = p.srv.o.Budget.Reserve(p.owner, pausedBytes); p.reserved {
			return
		}
		p.buf, p.err = nil, budget.ErrOver
		p.log.Warn("channel cut: no buffer space for an answer that its caller does not take", "account_id", p.owner)
		p.srv.metrics.channelsCut.Inc()
		go func() { _ = p.end() }()
	}
}

// readAhead reads one piece. It gives mu up meanwhile.
func (p *fills) readAhead() {
	p.ahead = true
	p.mu.Unlock()
	defer p.mu.Lock() // after a panic, too
	buf := make([]byte, aheadPiece)
	f := p.read(buf)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead, p.buf, p.err = false, buf[:f.N], f.Err
}

// close closes the channel once: it calls first, gives back what the channel has reserved, and
// discards what the peer sends.
func (p *fills) close(ch io.ReadCloser, first func()) error {
	p.closing.Do(func() {
		first()
		p.mu.Lock()
		p.closed, p.buf = true, nil
		p.timer.Stop()
		p.releaseLocked()
		p.mu.Unlock()
		p.srv.work.Go(func() { // it waits where the socket is stuck
			defer p.panics("close")
			_ = ch.Close()
			// What the peer sends all the same must not wait here for its CLOSE. The
			// window is not opened again.
			_, _ = io.Copy(io.Discard, ch)
		})
	})
	return nil
}

func (p *fills) releaseLocked() {
	if p.reserved {
		p.reserved = false
		p.srv.o.Budget.Release(p.owner, pausedBytes)
	}
}
