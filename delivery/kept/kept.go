// Package kept keeps the channels of plain ssh tunnels that have carried a request and may carry
// another one (ADR 0005, 0009, 0033). Each idle channel has a pending read, which returns when the
// local server closes the channel or sends a byte.
package kept

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// Counts holds the counters of the pools of all tunnels.
type Counts struct {
	Open *atomic.Int64 // channels that are open, idle ones included
	Kept *atomic.Int64 // of these, channels that were kept at some time
}

// Pool holds the idle channels of one tunnel. Its methods are safe for concurrent use.
type Pool struct {
	counts Counts
	// reuseEnded is called once when reuse ends for good; why is the reason, a clause about the local
	// server.
	reuseEnded func(why string)

	mu            sync.Mutex
	closed        bool
	reuseDisabled bool
	verified      bool       // an idle channel was seen to stay open, so the local server keeps connections
	idle          []*Channel // oldest first
	trim          *time.Timer

	// A local server that handles one connection at a time, or a fixed number of them, answers no other request
	// while idle channels use all its connections (ADR 0005).
	slow       int       // number of slow requests, as addSlow counts them
	reuseAgain time.Time // until this time no channel is kept
	maxIdle    int       // the largest number of idle channels, which Reduce lowers
	reducedAt  time.Time
	concurrent bool // proven was 2 or more at some time
	// proven is the number of connections that the local server is known to handle at once: it answered a
	// request on one while the others, on each of which it had answered before, stayed open. proven is reset to
	// 0 when none of these is open, because another program may listen now.
	proven atomic.Int64
	kept   atomic.Int64 // channels that were kept at some time and are open
	ended  atomic.Int64 // channels that were kept at some time and have been closed

	inUse int
}

const (
	maxIdleChannels = 256  // idle channels of one tunnel; many are needed, because a request with a body can use only a channel of its own caller
	maxReduced      = 64   // the same for a client with few file descriptors
	manyOpen        = 128  // at this number of open channels, a client may be short of file descriptors
	maxKeptInAll    = 8192 // kept channels of all tunnels, in use or idle
	// evictAfter is the age from which an idle channel gives way to a new one, because its caller has probably
	// left. Younger channels stay: otherwise, if more callers than channels send in turn, each caller would take
	// the channel of another caller.
	evictAfter  = 250 * time.Millisecond
	reuseLimit  = time.Second // longest time for which an idle channel is kept
	verifyAfter = 20 * time.Millisecond
	reusePause  = 10 * time.Second // pause of reuse after a slow request while a channel was idle
)

// New returns an empty pool. It calls reuseEnded once when reuse ends for good, with a clause about
// the local server as the reason.
func New(counts Counts, reuseEnded func(why string)) *Pool {
	p := &Pool{counts: counts, reuseEnded: reuseEnded, maxIdle: maxIdleChannels}
	p.trim = time.AfterFunc(time.Hour, p.trimIdle)
	p.trim.Stop()
	return p
}

// New returns a channel for a connection that was just opened.
func (p *Pool) New(c relay.Conn) *Channel {
	p.counts.Open.Add(1)
	return &Channel{Conn: c, pool: p}
}

// Begin counts a request that uses the tunnel. Each Begin needs one End.
func (p *Pool) Begin() { p.use(1) }

// End ends the use that Begin counted.
func (p *Pool) End() { p.use(-1) }

func (p *Pool) use(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse += n
}

// Take returns an idle channel for a request from caller, nil if there is none: the most recently used
// one of those that have not carried a body of another caller. caller is nil for replays and queued
// deliveries.
func (p *Pool) Take(caller relay.Caller) *Channel {
	for {
		p.mu.Lock()
		i := -1
		if p.reuseVerified() {
			i = len(p.idle) - 1
		}
		for i >= 0 && p.idle[i].owner != nil && p.idle[i].owner != caller {
			i--
		}
		if i < 0 {
			p.mu.Unlock()
			return nil
		}
		l := p.idle[i]
		p.idle = slices.Delete(p.idle, i, i+1)
		p.mu.Unlock()
		if p.healthy(l) {
			return l
		}
		_ = l.Close()
	}
}

// reuseVerified reports whether idle channels may be reused. A local server may close each connection after
// its response without announcing it. The next request on such a connection would be lost, because no request
// is sent twice. Therefore one idle channel first has to stay open for verifyAfter. The caller holds mu.
func (p *Pool) reuseVerified() bool {
	if !p.verified && len(p.idle) > 0 && time.Since(p.idle[0].since) >= verifyAfter {
		ended, _ := p.idle[0].polled()
		p.verified = !ended
	}
	return p.verified
}

// healthy reports whether an idle channel may carry a request.
func (p *Pool) healthy(l *Channel) bool {
	if ended, bytes := l.polled(); ended {
		if bytes {
			p.disableReuse("it sent bytes on an idle connection")
		}
		return false
	}
	return time.Now().Before(l.until)
}

// park keeps a channel for another request, at most for the duration limit.
func (p *Pool) park(l *Channel, limit time.Duration) {
	now := time.Now()
	if !l.reused {
		p.kept.Add(1)
		p.counts.Kept.Add(1)
	}
	l.endSlow()
	l.reused, l.since, l.until = true, now, now.Add(limit)
	// This starts the read that notices the end of the channel, or a byte on it.
	l.Ready()
	if ch, remote := l.Conn.(interface{ Parked() }); remote {
		ch.Parked()
	}
	p.mu.Lock()
	drop := l
	if p.reuses() && p.counts.Kept.Load() <= maxKeptInAll {
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
		_ = drop.Close()
	}
}

// reuses reports whether channels are currently kept for reuse. The caller holds mu.
func (p *Pool) reuses() bool {
	return !p.closed && !p.reuseDisabled && p.slow == 0 && !time.Now().Before(p.reuseAgain)
}

// addSlow is called for a request that has waited long for a response on a new channel. If more channels are
// open than the local server is known to handle at once, it closes the idle channels, and no channel is kept
// until removeSlow. Otherwise it does nothing and returns false. If it has closed an idle channel, none is kept for
// at least reusePause, unless the local server was known at some time to handle several connections at once.
func (p *Pool) addSlow() (counted bool) {
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
	p.CloseIdle()
	return true
}

// answeredChannels counts the channels that had had a response when a request was sent.
type answeredChannels struct{ open, ended int64 }

// answered returns the current count of channels that have had a response.
func (p *Pool) answered() answeredChannels {
	// ended is read first: a channel that is closed in between then makes the result too low, not too high.
	ended := p.ended.Load()
	return answeredChannels{p.kept.Load(), ended}
}

// noteAnswer raises proven, the number of connections that the local server is known to handle at
// once, after the first byte of a response. sent is the result of answered from before the request was
// sent; reused means that the request's own channel is in that count.
func (p *Pool) noteAnswer(sent answeredChannels, reused bool) {
	n := sent.open - (p.ended.Load() - sent.ended)
	if !reused {
		n++
	}
	if n <= p.proven.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.idle {
		if ended, _ := l.polled(); ended {
			n--
		}
	}
	p.proven.Store(max(n, p.proven.Load()))
	p.concurrent = p.concurrent || n >= 2
}

// Reduce closes the idle channels, and keeps fewer from now on, if so many channels are open that the
// client of the tunnel may have no file descriptor left for another connection (macOS gives a program
// 256). For reusePause after that, each further call closes the idle channels, too. Reduce reports whether it has
// closed them.
func (p *Pool) Reduce() bool {
	p.mu.Lock()
	if len(p.idle)+p.inUse > manyOpen {
		p.maxIdle, p.reducedAt = maxReduced, time.Now()
	}
	reduced := time.Since(p.reducedAt) < reusePause
	p.mu.Unlock()
	if reduced {
		p.CloseIdle()
	}
	return reduced
}

// removeSlow ends the count of addSlow, for a request that has a response or has ended without one.
func (p *Pool) removeSlow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow--
}

// disableReuse ends reuse for this tunnel for good, because its local server broke the
// rules of HTTP on a reused connection.
func (p *Pool) disableReuse(why string) {
	p.mu.Lock()
	first := !p.reuseDisabled
	p.reuseDisabled = true
	p.mu.Unlock()
	if first {
		p.reuseEnded(why)
	}
	p.CloseIdle()
}

// CloseIdle closes all idle channels.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	p.reuseVerified()
	waiting := p.idle
	p.idle = nil
	p.trim.Stop()
	p.mu.Unlock()
	for _, l := range waiting {
		p.healthy(l)
		_ = l.Close()
	}
}

// Close closes all idle channels; later ones are closed instead of kept.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.CloseIdle()
}

// Refill implements registry.Channels. It opens nothing, because an unused connection would block a local
// server that handles one connection at a time.
func (p *Pool) Refill() {}

// trimIdle closes channels that were idle for too long.
func (p *Pool) trimIdle() {
	now := time.Now()
	p.mu.Lock()
	p.reuseVerified()
	var old []*Channel
	keep := p.idle[:0]
	for _, l := range p.idle {
		if now.Before(l.until) {
			keep = append(keep, l)
		} else {
			old = append(old, l)
		}
	}
	clear(p.idle[len(keep):])
	p.idle = keep
	if !p.closed && len(keep) > 0 {
		p.trim.Reset(max(time.Millisecond, keep[0].until.Sub(now)))
	}
	p.mu.Unlock()
	for _, l := range old {
		p.healthy(l)
		_ = l.Close()
	}
}
