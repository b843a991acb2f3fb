package delivery

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"relay"
)

// pool holds channels of a tunnel that wait for a request: with plain ssh those
// that served one and may serve another, with relay up those opened ahead. Each has
// a read outstanding, so that what the local server does meanwhile shows.
type pool struct {
	h *hold

	mu      sync.Mutex
	closed  bool
	noReuse bool
	proven  bool    // a kept channel was seen to stay open: the local server keeps connections
	waiting []*line // oldest first
	trim    *time.Timer

	// A local server that takes one connection at a time is held up by every kept one.
	slow       int       // requests that have waited longer than slowAfter for an answer
	reuseAgain time.Time // no channel is kept before
	concurrent bool      // it has answered a request while an older channel was kept: it is none of those

	opening int
	inUse   int
	peak    [2]int // most in use in this window and in the one before
	window  time.Time
	backoff time.Duration
	after   time.Time // no spare is opened before
}

// Bounds of the pool.
const (
	reuseLimit  = time.Second
	mostSpares  = 16
	peakWindow  = 10 * time.Second
	firstRetry  = 250 * time.Millisecond
	lastRetry   = 15 * time.Second
	trimPause   = 5 * time.Second
	proofTime   = 20 * time.Millisecond
	smallBuffer = 4 << 10

	slowAfter  = 100 * time.Millisecond // without an answer: the local server may take one connection at a time
	reusePause = 10 * time.Second       // no channel is kept for so long after one may have been in the way
)

func (p *pool) init(h *hold) {
	p.h = h
	p.window = time.Now()
	p.trim = time.AfterFunc(time.Hour, p.trimNow)
	p.trim.Stop()
}

// use counts a channel in use; unuse counts it out.
func (p *pool) use() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roll(time.Now())
	p.inUse++
	p.peak[0] = max(p.peak[0], p.inUse)
}

func (p *pool) unuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
}

func (p *pool) roll(now time.Time) {
	for range 2 {
		if now.Sub(p.window) < peakWindow {
			return
		}
		p.peak[1], p.peak[0] = p.peak[0], p.inUse
		p.window = p.window.Add(peakWindow)
	}
	p.peak = [2]int{p.inUse, p.inUse}
	p.window = now
}

// take gives a waiting channel that a request of caller may use, or nil. A replay and a
// queued delivery have no caller.
func (p *pool) take(caller relay.Caller) *line {
	for {
		l := p.next(caller)
		if l == nil {
			return nil
		}
		if p.sound(l) {
			return l
		}
		l.close()
	}
}

// next removes and returns the spare channel that has waited longest, or the kept one
// that was used last among those that carried no other caller's body; nil = none.
func (p *pool) next(caller relay.Caller) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := len(p.waiting) - 1
	if p.h.lazy {
		i = min(i, 0)
	} else if i >= 0 && p.trusted() {
		for i >= 0 && p.waiting[i].owner != nil && p.waiting[i].owner != caller {
			i--
		}
	} else {
		i = -1
	}
	if i < 0 {
		return nil
	}
	l := p.waiting[i]
	p.waiting = slices.Delete(p.waiting, i, i+1)
	return l
}

// trusted tells whether kept channels may be used. A local server that closes after
// each answer without having said so would swallow the next request, which is never
// sent twice; so one of its connections has to be seen open for a moment first. Under
// mu.
func (p *pool) trusted() bool {
	if !p.proven && len(p.waiting) > 0 && time.Since(p.waiting[0].since) >= proofTime {
		ended, _ := p.waiting[0].heard()
		p.proven = !ended
	}
	return p.proven
}

// sound tells whether a waiting channel may carry a request.
func (p *pool) sound(l *line) bool {
	if ended, bytes := l.heard(); ended {
		if bytes && l.kept {
			p.stopReuse()
		}
		return false
	}
	return !l.kept || time.Now().Before(l.until)
}

// park keeps a channel for another request, for at most limit.
func (p *pool) park(l *line, limit time.Duration) {
	now := time.Now()
	l.kept, l.since, l.until = true, now, now.Add(limit)
	l.rest()
	p.mu.Lock()
	if !p.reuses() || len(p.waiting) >= channelsPerTunnel {
		p.mu.Unlock()
		l.close()
		return
	}
	p.waiting = append(p.waiting, l)
	if len(p.waiting) == 1 {
		p.trim.Reset(limit)
	}
	p.mu.Unlock()
}

// mayReuse tells whether it is worth keeping a channel at all.
func (p *pool) mayReuse() bool {
	if p.h.lazy {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reuses()
}

// reuses tells whether channels are kept at present; under mu.
func (p *pool) reuses() bool {
	return !p.closed && !p.noReuse && p.slow == 0 && !time.Now().Before(p.reuseAgain)
}

// addSlow counts a request that has waited for slowAfter without an answer. Kept channels
// may be why, so they are closed, and none is kept while such a request waits, nor for a
// while after one was in the way.
func (p *pool) addSlow() {
	p.mu.Lock()
	p.slow++
	if len(p.waiting) > 0 && !p.concurrent {
		p.reuseAgain = time.Now().Add(reusePause)
	}
	p.mu.Unlock()
	p.empty()
}

// noteAnswer looks whether the local server has answered a request that went out at sent
// while a channel kept since before then was open.
func (p *pool) noteAnswer(sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.concurrent || p.h.lazy || len(p.waiting) == 0 || !p.waiting[0].since.Before(sent) {
		return
	}
	ended, _ := p.waiting[0].heard()
	p.concurrent = !ended
}

// removeSlow ends addSlow: the request has an answer, or will get none.
func (p *pool) removeSlow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow--
}

// stopReuse ends reuse for this tunnel: its local server cannot be trusted with it.
func (p *pool) stopReuse() {
	p.mu.Lock()
	p.noReuse = true
	p.mu.Unlock()
	if !p.h.lazy {
		p.empty()
	}
}

// empty closes what waits.
func (p *pool) empty() {
	p.mu.Lock()
	p.trusted()
	waiting := p.waiting
	p.waiting = nil
	p.trim.Stop()
	p.mu.Unlock()
	for _, l := range waiting {
		p.sound(l)
		l.close()
	}
}

// close empties the pool for good.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.empty()
}

// trimNow closes what waited too long, and spares beyond what is wanted.
func (p *pool) trimNow() {
	now := time.Now()
	p.mu.Lock()
	p.roll(now)
	p.trusted()
	surplus := len(p.waiting) - p.wanted()
	var old []*line
	keep := p.waiting[:0]
	for _, l := range p.waiting {
		if l.kept && !now.Before(l.until) || !l.kept && surplus > 0 {
			surplus--
			old = append(old, l)
		} else {
			keep = append(keep, l)
		}
	}
	clear(p.waiting[len(keep):])
	p.waiting = keep
	switch {
	case p.closed || len(keep) == 0:
	case keep[0].kept:
		p.trim.Reset(max(time.Millisecond, keep[0].until.Sub(now)))
	case len(keep) > 1:
		p.trim.Reset(trimPause)
	}
	p.mu.Unlock()
	for _, l := range old {
		p.sound(l)
		l.close()
	}
}

// wanted is how many spares should wait; under mu.
func (p *pool) wanted() int {
	if !p.h.lazy {
		return 0
	}
	return max(1, min(mostSpares, max(p.peak[0], p.peak[1])))
}

// refill opens spares in the background as far as they are wanted. It is called behind
// each first write, so that a spare neither goes ahead of the request that took the
// last one nor comes too late for the next.
func (p *pool) refill() {
	if !p.h.lazy {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.roll(now)
	if p.closed || now.Before(p.after) {
		return
	}
	for n := p.wanted() - len(p.waiting) - p.opening; n > 0; n-- {
		if !p.h.st.d.background(p.openSpare) {
			return
		}
		p.opening++
	}
}

func (p *pool) openSpare() {
	d := p.h.st.d
	ctx, cancel := context.WithTimeout(d.base, openWait)
	defer cancel()
	ch, err := p.h.t.Open(ctx, netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	p.mu.Lock()
	p.opening--
	if err != nil {
		p.backoff = min(lastRetry, max(firstRetry, 2*p.backoff))
		p.after = time.Now().Add(p.backoff)
		p.mu.Unlock()
		return
	}
	p.backoff = 0
	p.mu.Unlock()
	l := newLine(d, ch)
	l.rest()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.h.mute() {
		l.close()
		return
	}
	p.waiting = append(p.waiting, l)
	if len(p.waiting) == 2 {
		p.trim.Reset(trimPause)
	}
}
