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
	att *attachment

	mu            sync.Mutex
	closed        bool
	reuseDisabled bool
	verified      bool             // a kept channel was seen to stay open: the local server keeps connections
	idle          []*pooledChannel // oldest first
	trim          *time.Timer

	// A local server that takes one connection at a time is held up by every kept one.
	slow       int       // requests that have waited longer than slowAfter for an answer
	reuseAgain time.Time // no channel is kept before
	concurrent bool      // it has answered a request while an older channel was kept: it is none of those

	opening   int
	inUse     int
	peak      [2]int // most in use in this window and in the one before
	window    time.Time
	backoff   time.Duration
	openAfter time.Time // no spare is opened before
}

// Bounds of the pool.
const (
	reuseLimit     = time.Second
	maxSpares      = 16
	peakWindow     = 10 * time.Second
	minOpenBackoff = 250 * time.Millisecond
	maxOpenBackoff = 15 * time.Second
	trimInterval   = 5 * time.Second
	verifyAfter    = 20 * time.Millisecond
	idleReadSize   = 4 << 10

	slowAfter  = 100 * time.Millisecond // without an answer: the local server may take one connection at a time
	reusePause = 10 * time.Second       // no channel is kept for so long after one may have been in the way
)

func (p *pool) init(h *attachment) {
	p.att = h
	p.window = time.Now()
	p.trim = time.AfterFunc(time.Hour, p.trimIdle)
	p.trim.Stop()
}

// addInUse counts a channel in use; unuse counts it out.
func (p *pool) addInUse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rollPeaks(time.Now())
	p.inUse++
	p.peak[0] = max(p.peak[0], p.inUse)
}

func (p *pool) removeInUse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
}

func (p *pool) rollPeaks(now time.Time) {
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
func (p *pool) take(caller relay.Caller) *pooledChannel {
	for {
		l := p.next(caller)
		if l == nil {
			return nil
		}
		if p.healthy(l) {
			return l
		}
		l.close()
	}
}

// next removes and returns the spare channel that has waited longest, or the kept one
// that was used last among those that carried no other caller's body; nil = none.
func (p *pool) next(caller relay.Caller) *pooledChannel {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := len(p.idle) - 1
	if p.att.lazy {
		i = min(i, 0)
	} else if i >= 0 && p.reuseVerified() {
		for i >= 0 && p.idle[i].owner != nil && p.idle[i].owner != caller {
			i--
		}
	} else {
		i = -1
	}
	if i < 0 {
		return nil
	}
	l := p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)
	return l
}

// reuseVerified tells whether kept channels may be used. A local server that closes after
// each answer without having said so would swallow the next request, which is never
// sent twice; so one of its connections has to be seen open for a moment first. Under
// mu.
func (p *pool) reuseVerified() bool {
	if !p.verified && len(p.idle) > 0 && time.Since(p.idle[0].since) >= verifyAfter {
		ended, _ := p.idle[0].pollIdleRead()
		p.verified = !ended
	}
	return p.verified
}

// healthy tells whether a waiting channel may carry a request.
func (p *pool) healthy(l *pooledChannel) bool {
	if ended, bytes := l.pollIdleRead(); ended {
		if bytes && l.reused {
			p.disableReuse()
		}
		return false
	}
	return !l.reused || time.Now().Before(l.until)
}

// park keeps a channel for another request, for at most limit.
func (p *pool) park(l *pooledChannel, limit time.Duration) {
	now := time.Now()
	l.reused, l.since, l.until = true, now, now.Add(limit)
	l.armIdleRead()
	p.mu.Lock()
	if !p.reuses() || len(p.idle) >= channelsPerTunnel {
		p.mu.Unlock()
		l.close()
		return
	}
	p.idle = append(p.idle, l)
	if len(p.idle) == 1 {
		p.trim.Reset(limit)
	}
	p.mu.Unlock()
}

// mayReuse tells whether it is worth keeping a channel at all.
func (p *pool) mayReuse() bool {
	if p.att.lazy {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reuses()
}

// reuses tells whether channels are kept at present; under mu.
func (p *pool) reuses() bool {
	return !p.closed && !p.reuseDisabled && p.slow == 0 && !time.Now().Before(p.reuseAgain)
}

// addSlow counts a request that has waited for slowAfter without an answer. Kept channels
// may be why, so they are closed, and none is kept while such a request waits, nor for a
// while after one was in the way.
func (p *pool) addSlow() {
	p.mu.Lock()
	p.slow++
	if len(p.idle) > 0 && !p.concurrent {
		p.reuseAgain = time.Now().Add(reusePause)
	}
	p.mu.Unlock()
	p.closeIdle()
}

// noteAnswer looks whether the local server has answered a request that went out at sent
// while a channel kept since before then was open.
func (p *pool) noteAnswer(sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.concurrent || p.att.lazy || len(p.idle) == 0 || !p.idle[0].since.Before(sent) {
		return
	}
	ended, _ := p.idle[0].pollIdleRead()
	p.concurrent = !ended
}

// removeSlow ends addSlow: the request has an answer, or will get none.
func (p *pool) removeSlow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow--
}

// disableReuse ends reuse for this tunnel, after its local server has misbehaved on a
// reused connection.
func (p *pool) disableReuse() {
	p.mu.Lock()
	p.reuseDisabled = true
	p.mu.Unlock()
	if !p.att.lazy {
		p.closeIdle()
	}
}

// closeIdle closes what waits.
func (p *pool) closeIdle() {
	p.mu.Lock()
	p.reuseVerified()
	waiting := p.idle
	p.idle = nil
	p.trim.Stop()
	p.mu.Unlock()
	for _, l := range waiting {
		p.healthy(l)
		l.close()
	}
}

// close empties the pool for good.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.closeIdle()
}

// trimIdle closes what waited too long, and spares beyond what is wanted.
func (p *pool) trimIdle() {
	now := time.Now()
	p.mu.Lock()
	p.rollPeaks(now)
	p.reuseVerified()
	surplus := len(p.idle) - p.wantedSpares()
	var old []*pooledChannel
	keep := p.idle[:0]
	for _, l := range p.idle {
		if l.reused && !now.Before(l.until) || !l.reused && surplus > 0 {
			surplus--
			old = append(old, l)
		} else {
			keep = append(keep, l)
		}
	}
	clear(p.idle[len(keep):])
	p.idle = keep
	switch {
	case p.closed || len(keep) == 0:
	case keep[0].reused:
		p.trim.Reset(max(time.Millisecond, keep[0].until.Sub(now)))
	case len(keep) > 1:
		p.trim.Reset(trimInterval)
	}
	p.mu.Unlock()
	for _, l := range old {
		p.healthy(l)
		l.close()
	}
}

// wantedSpares is how many spares should wait; under mu.
func (p *pool) wantedSpares() int {
	if !p.att.lazy {
		return 0
	}
	return max(1, min(maxSpares, max(p.peak[0], p.peak[1])))
}

// refill opens spares in the background as far as they are wanted. It is called behind
// each first write, so that a spare neither goes ahead of the request that took the
// last one nor comes too late for the next.
func (p *pool) refill() {
	if !p.att.lazy {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.rollPeaks(now)
	if p.closed || now.Before(p.openAfter) {
		return
	}
	for n := p.wantedSpares() - len(p.idle) - p.opening; n > 0; n-- {
		if !p.att.st.d.background(p.openSpare) {
			return
		}
		p.opening++
	}
}

func (p *pool) openSpare() {
	d := p.att.st.d
	ctx, cancel := context.WithTimeout(d.base, openWait)
	defer cancel()
	ch, err := p.att.t.Open(ctx, netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	p.mu.Lock()
	p.opening--
	if err != nil {
		p.backoff = min(maxOpenBackoff, max(minOpenBackoff, 2*p.backoff))
		p.openAfter = time.Now().Add(p.backoff)
		p.mu.Unlock()
		return
	}
	p.backoff = 0
	p.mu.Unlock()
	l := newPooledChannel(d, ch)
	l.armIdleRead()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.att.staleNow() {
		l.close()
		return
	}
	p.idle = append(p.idle, l)
	if len(p.idle) == 2 {
		p.trim.Reset(trimInterval)
	}
}
