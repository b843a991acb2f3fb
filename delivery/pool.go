package delivery

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// pool holds the idle channels of a tunnel: with plain ssh channels that have carried a
// request and may carry another one, with relay up channels opened ahead (spares). Each
// has a read outstanding, which shows when the local server closes it or sends a byte.
type pool struct {
	att *attachment

	mu            sync.Mutex
	closed        bool
	reuseDisabled bool
	verified      bool             // an idle channel was seen to stay open: the local server keeps connections
	idle          []*pooledChannel // oldest first
	trim          *time.Timer

	// A local server that handles one connection at a time, or a fixed number of them,
	// answers no other request while idle channels use them up (ADR 0005).
	slow       int       // requests that addSlow counts
	reuseAgain time.Time // no channel is kept before this time
	maxIdle    int       // see reduce
	reducedAt  time.Time
	concurrent bool // proven was 2 or more at some time
	// proven is how many connections the local server is known to handle at once: it has
	// answered a request while all other channels of that number stayed open that had an
	// answer before. It is 0 again when none of those is open any more, because another
	// program may listen there now.
	proven atomic.Int64
	kept   atomic.Int64 // open channels that park has kept at some time
	ended  atomic.Int64 // those that were closed since

	opening   int
	inUse     int
	peak      [2]int // most channels in use in this window and in the one before
	window    time.Time
	backoff   time.Duration
	openAfter time.Time // no spare is opened before this time
}

// Bounds of the pool.
const (
	maxIdleChannels = 256  // of one tunnel; a request with a body needs the one of its own caller
	maxKeptInAll    = 8192 // in use or idle, of all tunnels
	// evictAfter is the age from which an idle channel gives way to a new one: its caller has
	// probably gone. A younger one does not, so that more callers than channels, which come
	// in turn, do not take each other's.
	evictAfter = 250 * time.Millisecond
	// closeTime is given to the peer to close channels before another one is opened.
	closeTime = 50 * time.Millisecond

	reuseLimit     = time.Second
	maxSpares      = 16
	peakWindow     = 10 * time.Second
	minOpenBackoff = 250 * time.Millisecond
	maxOpenBackoff = 15 * time.Second
	trimInterval   = 5 * time.Second
	verifyAfter    = 20 * time.Millisecond
	idleReadSize   = 4 << 10

	slowAfter  = 100 * time.Millisecond // a request without an answer for so long is slow
	reusePause = 10 * time.Second       // pause of reuse after a slow request while a channel was idle
)

func (p *pool) init(h *attachment) {
	p.att, p.maxIdle = h, maxIdleChannels
	p.window = time.Now()
	p.trim = time.AfterFunc(time.Hour, p.trimIdle)
	p.trim.Stop()
}

// addInUse counts a channel that a request uses; removeInUse ends that.
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

// take returns an idle channel for a request from caller, nil if there is none. caller is
// nil for replays and queued deliveries.
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

// next removes one idle channel and returns it: the oldest spare, or the most recently
// used channel of those that carried no other caller's body; nil if there is none.
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

// reuseVerified reports whether idle channels may be reused. A local server that closes
// after each answer without announcing it would lose the next request, and no request is
// sent twice; so one idle channel has to stay open for verifyAfter first. The caller
// holds mu.
func (p *pool) reuseVerified() bool {
	if !p.verified && len(p.idle) > 0 && time.Since(p.idle[0].since) >= verifyAfter {
		ended, _ := p.idle[0].pollIdleRead()
		p.verified = !ended
	}
	return p.verified
}

// healthy reports whether an idle channel may carry a request.
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
	if !l.reused {
		l.keptBy = p
		p.kept.Add(1)
		l.d.kept.Add(1)
	}
	l.reused, l.since, l.until = true, now, now.Add(limit)
	l.armIdleRead()
	if ch, remote := l.ch.(interface{ Parked() }); remote {
		ch.Parked()
	}
	p.mu.Lock()
	drop := l
	if p.reuses() && l.d.kept.Load() <= maxKeptInAll {
		switch {
		case len(p.idle) < p.maxIdle:
			drop = nil
		case now.Sub(p.idle[0].since) >= evictAfter:
			drop = p.idle[0]
			p.idle = slices.Delete(p.idle, 0, 1)
		}
	}
	if drop != l {
		p.idle = append(p.idle, l)
		if len(p.idle) == 1 {
			p.trim.Reset(limit)
		}
	}
	p.mu.Unlock()
	if drop != nil {
		drop.close()
	}
}

// mayReuse reports whether park would keep a channel.
func (p *pool) mayReuse() bool {
	if p.att.lazy {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reuses()
}

// reuses reports whether channels are kept for reuse now. The caller holds mu.
func (p *pool) reuses() bool {
	return !p.closed && !p.reuseDisabled && p.slow == 0 && !time.Now().Before(p.reuseAgain)
}

// addSlow is called when a request has waited for slowAfter without an answer. If more
// channels are open than the local server is known to handle at once, idle ones may be the
// reason: addSlow closes them and counts the request. No channel is kept until removeSlow
// ends that, nor for reusePause if a channel was idle now, unless the local server has
// handled several connections at once before.
func (p *pool) addSlow() (counted bool) {
	p.mu.Lock()
	if int64(len(p.idle)+p.inUse) <= p.proven.Load() {
		p.mu.Unlock()
		return false
	}
	p.slow++
	if len(p.idle) > 0 && !p.concurrent {
		p.reuseAgain = time.Now().Add(reusePause)
	}
	p.mu.Unlock()
	p.closeIdle()
	return true
}

// keptChannels are the channels that had an answer, as a request was sent.
type keptChannels struct{ open, ended int64 }

func (p *pool) keptChannels() keptChannels {
	ended := p.ended.Load() // first: a channel that is closed meanwhile then counts too low
	return keptChannels{p.kept.Load(), ended}
}

// noteAnswer raises proven after the first byte of an answer. sent is the result of
// keptChannels before the request was sent, reused tells that its own channel is one of them.
func (p *pool) noteAnswer(sent keptChannels, reused bool) {
	n := sent.open - (p.ended.Load() - sent.ended)
	if !reused {
		n++
	}
	if n <= p.proven.Load() || p.att.lazy {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.idle {
		if ended, _ := l.pollIdleRead(); ended {
			n--
		}
	}
	p.proven.Store(max(n, p.proven.Load()))
	p.concurrent = p.concurrent || n >= 2
}

// reduce closes the idle channels, and keeps fewer from now on, if so many channels are open
// that the client of the tunnel may have no descriptor left for another connection (macOS
// gives a program 256). It reports whether that has happened just now.
func (p *pool) reduce() bool {
	p.mu.Lock()
	if len(p.idle)+p.inUse > 2*channelsPerTunnel {
		p.maxIdle, p.reducedAt = channelsPerTunnel, time.Now()
	}
	reduced := time.Since(p.reducedAt) < reusePause
	p.mu.Unlock()
	if reduced {
		p.closeIdle()
	}
	return reduced
}

// removeSlow ends the count of a request that is answered or has ended without an answer.
func (p *pool) removeSlow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow--
}

// disableReuse ends reuse for this tunnel for good, because its local server broke the
// rules of HTTP on a reused connection.
func (p *pool) disableReuse() {
	p.mu.Lock()
	p.reuseDisabled = true
	p.mu.Unlock()
	if !p.att.lazy {
		p.closeIdle()
	}
}

// closeIdle closes all idle channels.
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

// trimIdle closes channels that were idle for too long, and spares that are not wanted.
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
	case len(keep) > 1, p.att.remote != nil:
		p.trim.Reset(trimInterval)
	}
	p.mu.Unlock()
	for _, l := range old {
		p.healthy(l)
		l.close()
	}
}

// wantedSpares returns how many spares the pool should hold. The caller holds mu.
func (p *pool) wantedSpares() int {
	if !p.att.lazy {
		return 0
	}
	least := 1
	if p.att.remote != nil {
		least = 0 // every node would keep one for each tunnel
	}
	return max(least, min(maxSpares, max(p.peak[0], p.peak[1])))
}

// refill opens missing spares in the background. It is called after the first write of
// each request, so that opening a spare does not delay that request.
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
	if len(p.idle) == 2 || len(p.idle) == 1 && p.att.remote != nil {
		p.trim.Reset(trimInterval)
	}
}
