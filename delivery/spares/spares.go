// Package spares opens channels ahead of requests for the tunnels of relay up, whose client connects
// to its local server at the first byte of a channel. Each channel carries one request.
package spares

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay"
	"relay/waits"
)

// Way is the value of Channel.Way for a channel that was opened ahead.
const Way = "spare"

// Options describe the tunnel of a pool.
type Options struct {
	Remote bool // another node has the tunnel
	// Open opens a channel to the local server for a caller.
	Open func(ctx context.Context, origin netip.AddrPort) (relay.Conn, error)
	// Silent reports whether nothing may be sent on the tunnel.
	Silent func() bool
	// Background runs a function in a goroutine of its own. It returns false when the relay
	// is stopping, and does not run it then.
	Background func(func()) bool
	Base       context.Context // ends when everything must stop
	Count      *atomic.Int64   // open channels of all tunnels, idle ones included
}

// Pool holds the spares of one tunnel. Its methods are safe for concurrent use.
type Pool struct {
	Options

	mu        sync.Mutex
	closed    bool
	idle      []*Channel // oldest first
	trim      *time.Timer
	opening   int
	inUse     int
	peak      [2]int // largest number of channels in use, in the current period of peakWindow and in the previous one
	window    time.Time
	backoff   time.Duration
	openAfter time.Time // no spare is opened before this time
}

const (
	openTimeout    = 1900 * time.Millisecond
	maxSpares      = 16
	peakWindow     = 10 * time.Second
	minOpenBackoff = 250 * time.Millisecond
	maxOpenBackoff = 15 * time.Second
	trimInterval   = 5 * time.Second
)

// New returns an empty pool.
func New(o Options) *Pool {
	p := &Pool{Options: o, window: time.Now()}
	p.trim = time.AfterFunc(time.Hour, p.trimIdle)
	p.trim.Stop()
	return p
}

// New returns a channel for a connection that was just opened.
func (p *Pool) New(c relay.Conn) *Channel {
	p.Count.Add(1)
	return &Channel{Conn: c, pool: p}
}

// Begin counts a request that uses the tunnel. Each Begin needs one End.
func (p *Pool) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rollPeaks(time.Now())
	p.inUse++
	p.peak[0] = max(p.peak[0], p.inUse)
}

// End ends the use that Begin counted.
func (p *Pool) End() {
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

// Take returns the oldest spare, nil if there is none.
func (p *Pool) Take() *Channel {
	for {
		p.mu.Lock()
		if len(p.idle) == 0 {
			p.mu.Unlock()
			return nil
		}
		l := p.idle[0]
		p.idle = slices.Delete(p.idle, 0, 1)
		p.mu.Unlock()
		select {
		case <-l.Ready():
			// This spare has ended.
			_ = l.Close()
		default:
			return l
		}
	}
}

// Reduce implements registry.Channels. It does nothing, because there are few spares.
func (p *Pool) Reduce() bool { return false }

// CloseIdle closes all spares.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.trim.Stop()
	p.mu.Unlock()
	for _, l := range idle {
		_ = l.Close()
	}
}

// Close closes all spares; no further ones are opened.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.CloseIdle()
}

// trimIdle closes the spares that are no longer wanted.
func (p *Pool) trimIdle() {
	p.mu.Lock()
	p.rollPeaks(time.Now())
	surplus := p.idle[:max(0, len(p.idle)-p.wanted())]
	p.idle = slices.Clone(p.idle[len(surplus):])
	if left := len(p.idle); !p.closed && (left > 1 || left == 1 && p.Remote) {
		p.trim.Reset(trimInterval)
	}
	p.mu.Unlock()
	for _, l := range surplus {
		_ = l.Close()
	}
}

// wanted returns the number of spares that the pool should hold. The caller holds mu.
func (p *Pool) wanted() int {
	least := 1
	if p.Remote {
		// Otherwise every node would keep a spare for each tunnel.
		least = 0
	}
	return max(least, min(maxSpares, max(p.peak[0], p.peak[1])))
}

// Refill opens missing spares in the background.
func (p *Pool) Refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.rollPeaks(now)
	if p.closed || now.Before(p.openAfter) {
		return
	}
	for n := p.wanted() - len(p.idle) - p.opening; n > 0; n-- {
		if !p.Background(p.openSpare) {
			return
		}
		p.opening++
	}
}

func (p *Pool) openSpare() {
	ctx, cancel := waits.WithTimeout(p.Base, openTimeout)
	defer cancel()
	c, err := p.Open(ctx, netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening--
	if err != nil {
		p.backoff = min(maxOpenBackoff, max(minOpenBackoff, 2*p.backoff))
		p.openAfter = time.Now().Add(p.backoff)
		return
	}
	p.backoff = 0
	l := p.New(c)
	l.spare = true
	l.Ready()
	p.mu.Unlock()
	silent := p.Silent()
	p.mu.Lock()
	if p.closed || silent {
		_ = l.Close()
		return
	}
	p.idle = append(p.idle, l)
	if len(p.idle) == 2 || len(p.idle) == 1 && p.Remote {
		p.trim.Reset(trimInterval)
	}
}

// Channel is one channel of a tunnel. It is used by one request, or idle in the pool.
type Channel struct {
	relay.Conn
	pool   *Pool
	spare  bool // the channel was opened ahead
	sent   bool // a byte was written to the channel
	closed bool
}

// Write implements relay.Conn. A new spare is opened after the first write of a request, so that it
// does not delay that request.
func (l *Channel) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if !l.sent && (n > 0 || err == nil) {
		l.sent = true
		l.pool.Refill()
	}
	return n, err
}

// Way implements registry.Channel.
func (l *Channel) Way() string {
	if l.spare {
		return Way
	}
	return relay.ConnectionNew
}

// Idled implements registry.Channel.
func (l *Channel) Idled() bool { return l.spare }

// Reused implements registry.Channel.
func (l *Channel) Reused() bool { return false }

// Begin implements registry.Channel.
func (l *Channel) Begin() {}

// Slow implements registry.Channel. It does nothing, because the client connects to the local server for
// each request, so idle channels do not block it.
func (l *Channel) Slow() {}

// Keep implements registry.Channel. It closes the channel, because each carries one request only.
func (l *Channel) Keep(time.Duration, relay.Caller) { _ = l.Close() }

// Close implements relay.Conn.
func (l *Channel) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	l.pool.Count.Add(-1)
	return l.Conn.Close()
}
