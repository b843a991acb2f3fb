// Package pool keeps the idle channels of a tunnel: with plain ssh channels that have carried
// a request and may carry another one, with relay up channels opened ahead (spares). Each has
// a read outstanding, which shows when the local server closes it or sends a byte.
package pool

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// Options describe the tunnel of a pool.
type Options struct {
	Lazy   bool // its client dials the local server at the first byte of a channel: spares
	Remote bool // another node has it
	// Open opens a channel to the local server for a caller.
	Open func(ctx context.Context, origin netip.AddrPort) (relay.Channel, error)
	// Silent reports whether nothing may be sent on the tunnel.
	Silent func() bool
	// Background runs a function in a goroutine of its own. It returns false when the relay
	// is stopping, and does not run it then.
	Background func(func()) bool
	Base       context.Context // ends when everything must stop
	Shared     *Shared
	// ReuseEnded is called once when reuse ends for good; why is a clause about the local server.
	ReuseEnded func(why string)
}

// Shared is what the pools of all tunnels have together. The zero value is ready.
type Shared struct {
	open atomic.Int64 // channels
	kept atomic.Int64 // of these, those that a pool has kept at some time
}

// Open returns how many channels are open, idle ones included.
func (s *Shared) Open() int { return int(s.open.Load()) }

// Pool holds the idle channels of one tunnel. Its methods are safe for concurrent use.
type Pool struct {
	Options

	mu            sync.Mutex
	closed        bool
	reuseDisabled bool
	verified      bool       // an idle channel was seen to stay open: the local server keeps connections
	idle          []*Channel // oldest first
	trim          *time.Timer

	// A local server that handles one connection at a time, or a fixed number of them,
	// answers no other request while idle channels use them up (ADR 0005).
	slow       int       // requests that AddSlow counts
	reuseAgain time.Time // no channel is kept before this time
	maxIdle    int       // see Reduce
	reducedAt  time.Time
	concurrent bool // proven was 2 or more at some time
	// proven is how many connections the local server is known to handle at once: it has
	// answered a request while all other channels of that number stayed open that had an
	// answer before. It is 0 again when none of those is open any more, because another
	// program may listen there now.
	proven atomic.Int64
	kept   atomic.Int64 // open channels that Park has kept at some time
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
	MaxInUse        = 64                      // channels of one tunnel in use, those of upgraded connections apart
	OpenTimeout     = 1900 * time.Millisecond // for the answer to a channel open; what meets a silent tunnel is queued, and stored, after at most 2 s
	maxIdleChannels = 256                     // of one tunnel; a request with a body needs the one of its own caller
	maxKeptInAll    = 8192                    // in use or idle, of all tunnels
	// evictAfter is the age from which an idle channel gives way to a new one: its caller has
	// probably gone. A younger one does not, so that more callers than channels, which come
	// in turn, do not take each other's.
	evictAfter = 250 * time.Millisecond
	// CloseTime is given to the peer to close channels before another one is opened.
	CloseTime = 50 * time.Millisecond

	ReuseLimit     = time.Second // an idle channel is kept for so long
	maxSpares      = 16
	peakWindow     = 10 * time.Second
	minOpenBackoff = 250 * time.Millisecond
	maxOpenBackoff = 15 * time.Second
	trimInterval   = 5 * time.Second
	verifyAfter    = 20 * time.Millisecond

	SlowAfter  = 100 * time.Millisecond // a request without an answer for so long is slow
	reusePause = 10 * time.Second       // pause of reuse after a slow request while a channel was idle
)

// New makes an empty pool.
func New(o Options) *Pool {
	p := &Pool{Options: o, maxIdle: maxIdleChannels, window: time.Now()}
	p.trim = time.AfterFunc(time.Hour, p.trimIdle)
	p.trim.Stop()
	return p
}

// AddInUse counts a channel that a request uses.
func (p *Pool) AddInUse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rollPeaks(time.Now())
	p.inUse++
	p.peak[0] = max(p.peak[0], p.inUse)
}

// RemoveInUse ends the count of a channel by AddInUse.
func (p *Pool) RemoveInUse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
}

func (p *Pool) rollPeaks(now time.Time) {
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

// Take returns an idle channel for a request from caller, nil if there is none: the oldest
// spare, or the most recently used channel of those that carried no other caller's body.
// caller is nil for replays and queued deliveries.
func (p *Pool) Take(caller relay.Caller) *Channel {
	for {
		p.mu.Lock()
		i := len(p.idle) - 1
		switch {
		case p.Lazy:
			i = min(i, 0)
		case !p.reuseVerified():
			i = -1
		}
		for i >= 0 && p.idle[i].Owner != nil && p.idle[i].Owner != caller {
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
		l.Close()
	}
}

// reuseVerified reports whether idle channels may be reused. A local server that closes
// after each answer without announcing it would lose the next request, and no request is
// sent twice; so one idle channel has to stay open for verifyAfter first. The caller
// holds mu.
func (p *Pool) reuseVerified() bool {
	if !p.verified && len(p.idle) > 0 && time.Since(p.idle[0].since) >= verifyAfter {
		ended, _ := p.idle[0].pollIdleRead()
		p.verified = !ended
	}
	return p.verified
}

// healthy reports whether an idle channel may carry a request.
func (p *Pool) healthy(l *Channel) bool {
	if ended, bytes := l.pollIdleRead(); ended {
		if bytes && l.Reused {
			p.DisableReuse("it sent bytes on an idle connection")
		}
		return false
	}
	return !l.Reused || time.Now().Before(l.until)
}

// Park keeps a channel for another request, for at most limit.
func (p *Pool) Park(l *Channel, limit time.Duration) {
	now := time.Now()
	if !l.Reused {
		l.keptBy = p
		p.kept.Add(1)
		p.Shared.kept.Add(1)
	}
	l.Reused, l.since, l.until = true, now, now.Add(limit)
	l.armIdleRead()
	if ch, remote := l.Channel.(interface{ Parked() }); remote {
		ch.Parked()
	}
	p.mu.Lock()
	drop := l
	if p.reuses() && p.Shared.kept.Load() <= maxKeptInAll {
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
		drop.Close()
	}
}

// MayReuse reports whether Park would keep a channel.
func (p *Pool) MayReuse() bool {
	if p.Lazy {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reuses()
}

// reuses reports whether channels are kept for reuse now. The caller holds mu.
func (p *Pool) reuses() bool {
	return !p.closed && !p.reuseDisabled && p.slow == 0 && !time.Now().Before(p.reuseAgain)
}

// AddSlow is called when a request has waited for SlowAfter without an answer. If more
// channels are open than the local server is known to handle at once, idle ones may be the
// reason: AddSlow closes them and counts the request. No channel is kept until RemoveSlow
// ends that, nor for reusePause if a channel was idle now, unless the local server has
// handled several connections at once before.
func (p *Pool) AddSlow() (counted bool) {
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

// KeptChannels are the channels that had an answer, as a request was sent.
type KeptChannels struct{ open, ended int64 }

// Kept returns the channels that had an answer, as a request is sent.
func (p *Pool) Kept() KeptChannels {
	ended := p.ended.Load() // first: a channel that is closed meanwhile then counts too low
	return KeptChannels{p.kept.Load(), ended}
}

// NoteAnswer raises proven after the first byte of an answer. sent is the result of
// Kept before the request was sent, reused tells that its own channel is one of them.
func (p *Pool) NoteAnswer(sent KeptChannels, reused bool) {
	n := sent.open - (p.ended.Load() - sent.ended)
	if !reused {
		n++
	}
	if n <= p.proven.Load() || p.Lazy {
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

// Reduce closes the idle channels, and keeps fewer from now on, if so many channels are open
// that the client of the tunnel may have no descriptor left for another connection (macOS
// gives a program 256). It reports whether that has happened just now.
func (p *Pool) Reduce() bool {
	p.mu.Lock()
	if len(p.idle)+p.inUse > 2*MaxInUse {
		p.maxIdle, p.reducedAt = MaxInUse, time.Now()
	}
	reduced := time.Since(p.reducedAt) < reusePause
	p.mu.Unlock()
	if reduced {
		p.CloseIdle()
	}
	return reduced
}

// RemoveSlow ends the count of a request that is answered or has ended without an answer.
func (p *Pool) RemoveSlow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow--
}

// DisableReuse ends reuse for this tunnel for good, because its local server broke the
// rules of HTTP on a reused connection.
func (p *Pool) DisableReuse(why string) {
	p.mu.Lock()
	first := !p.reuseDisabled
	p.reuseDisabled = true
	p.mu.Unlock()
	if p.Lazy {
		return
	}
	if first && p.ReuseEnded != nil {
		p.ReuseEnded(why)
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
		l.Close()
	}
}

// Close empties the pool for good.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.CloseIdle()
}

// trimIdle closes channels that were idle for too long, and spares that are not wanted.
func (p *Pool) trimIdle() {
	now := time.Now()
	p.mu.Lock()
	p.rollPeaks(now)
	p.reuseVerified()
	surplus := len(p.idle) - p.wantedSpares()
	var old []*Channel
	keep := p.idle[:0]
	for _, l := range p.idle {
		if l.Reused && !now.Before(l.until) || !l.Reused && surplus > 0 {
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
	case keep[0].Reused:
		p.trim.Reset(max(time.Millisecond, keep[0].until.Sub(now)))
	case len(keep) > 1, p.Remote:
		p.trim.Reset(trimInterval)
	}
	p.mu.Unlock()
	for _, l := range old {
		p.healthy(l)
		l.Close()
	}
}

// wantedSpares returns how many spares the pool should hold. The caller holds mu.
func (p *Pool) wantedSpares() int {
	if !p.Lazy {
		return 0
	}
	least := 1
	if p.Remote {
		least = 0 // every node would keep one for each tunnel
	}
	return max(least, min(maxSpares, max(p.peak[0], p.peak[1])))
}

// Refill opens missing spares in the background. It is called after the first write of
// each request, so that opening a spare does not delay that request.
func (p *Pool) Refill() {
	if !p.Lazy {
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
		if !p.Background(p.openSpare) {
			return
		}
		p.opening++
	}
}

func (p *Pool) openSpare() {
	ctx, cancel := context.WithTimeout(p.Base, OpenTimeout)
	defer cancel()
	ch, err := p.Open(ctx, netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
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
	l := p.Channel(ch)
	l.armIdleRead()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.Silent() {
		l.Close()
		return
	}
	p.idle = append(p.idle, l)
	if len(p.idle) == 2 || len(p.idle) == 1 && p.Remote {
		p.trim.Reset(trimInterval)
	}
}
