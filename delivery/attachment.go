package delivery

import (
	"context"
	"errors"
	"time"

	"relay"
)

// attachment binds a tunnel to an alias. The SSH gate gets it from Attach, and exchanges
// open their channels on it.
type attachment struct {
	st      *aliasState
	t       relay.Tunnel
	info    relay.TunnelInfo
	lazy    bool
	limiter *limiter

	// Guarded by st.mu.
	lost         chan struct{} // closed while new and running exchanges must not use the tunnel
	isLost       bool
	stale        bool // the SSH gate called Stale
	openTimedOut bool // a channel open was not answered
	detached     bool

	pool pool
}

// Attach binds t to the alias at once; it cannot fail. The tunnel that had the alias
// before is closed with the reason "taken over by a newer connection", and the exchanges
// that run on it may finish.
func (d *Delivery) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	st := d.registry.find(d, a)
	h := &attachment{st: st, t: t, info: t.Info(), lazy: t.LazyDial(), lost: make(chan struct{})}
	hard := maxChannelsPlain
	if h.lazy {
		hard = maxChannelsLazy
	}
	h.limiter = newLimiter(channelsPerTunnel, hard, crowdRequests)
	h.pool.init(h)
	now := time.Now()
	st.mu.Lock()
	if st.gone {
		st.mu.Unlock()
		h.markLost()
		d.background(func() { t.Close(relay.AliasRemoved) })
		return h
	}
	old := st.attached
	st.attached, st.since, st.wasOnline = h, now, true
	st.mu.Unlock()
	d.counters.attached.Add(1)
	if old != nil {
		d.counters.takenOver.Add(1)
		d.store.NoteTakeover(a, old.info, h.info)
		old.pool.close()
		d.background(func() { old.t.Close("taken over by a newer connection") })
	}
	d.registry.touch(st.id, now)
	d.feed.tunnel(st.id)
	h.pool.refill()
	st.startDispatch()
	return h
}

// Stale marks the peer as silent.
func (h *attachment) Stale() { _ = h.markStale(&h.stale) }

// Online marks a stale tunnel as alive again.
func (h *attachment) Online() {
	h.st.mu.Lock()
	was := h.isStale()
	h.stale, h.openTimedOut = false, false
	current := h.st.attached == h
	if was && !h.detached {
		h.lost, h.isLost = make(chan struct{}), false
		if current {
			h.st.since = time.Now()
		}
	}
	h.st.mu.Unlock()
	if was && current {
		h.st.d.feed.tunnel(h.st.id)
		h.pool.refill()
		h.st.startDispatch()
	}
}

// Detach ends the hold. Also a hold that was taken over is told: what still runs on
// it then fails as tunnel-lost.
func (h *attachment) Detach(graceful bool) {
	now := time.Now()
	h.st.mu.Lock()
	h.detached = true
	current := h.st.attached == h
	if current {
		h.st.attached, h.st.since = nil, now
	}
	h.st.mu.Unlock()
	if graceful {
		h.pool.close()
	} else {
		h.markLost()
	}
	if current {
		h.st.d.registry.touch(h.st.id, now)
		h.st.d.feed.tunnel(h.st.id)
	}
}

// isStale reports whether nothing may be sent on the tunnel. The caller holds st.mu.
func (h *attachment) isStale() bool { return h.stale || h.openTimedOut }

// markLost fails the exchanges that run on the tunnel, as tunnel-lost.
func (h *attachment) markLost() {
	h.st.mu.Lock()
	if !h.isLost {
		h.isLost = true
		close(h.lost)
	}
	h.st.mu.Unlock()
	h.pool.close()
}

// markStale sets one of the two reasons for being stale. It returns false if that reason
// was set already.
func (h *attachment) markStale(why *bool) bool {
	h.st.mu.Lock()
	if h.detached || *why {
		h.st.mu.Unlock()
		return false
	}
	first := !h.isStale()
	*why = true
	if !h.isLost {
		h.isLost = true
		close(h.lost)
	}
	current := h.st.attached == h
	if first && current {
		h.st.since = time.Now()
	}
	h.st.mu.Unlock()
	h.pool.closeIdle()
	if first && current {
		h.st.d.feed.tunnel(h.st.id)
	}
	return true
}

// onOpenTimeout marks the tunnel stale after the peer did not answer a channel open.
// awaitLiveness ends that state once the peer sends a byte: the SSH gate may have missed
// no byte yet, and would then never call Online.
func (h *attachment) onOpenTimeout() {
	if h.markStale(&h.openTimedOut) {
		h.st.d.background(h.awaitLiveness)
	}
}

func (h *attachment) awaitLiveness() {
	const every = 250 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-h.st.d.base.Done():
			return
		}
		h.st.mu.Lock()
		over := h.detached || !h.openTimedOut
		byDoor := h.stale
		h.st.mu.Unlock()
		switch {
		case over:
			return
		case h.t.Heard() > 2*every:
		case byDoor:
			h.st.mu.Lock()
			h.openTimedOut = false // the SSH gate calls Online when the peer is back
			h.st.mu.Unlock()
			return
		default:
			h.Online()
			return
		}
	}
}

// channelFor returns a channel for the exchange. With fresh set, it opens a new one
// instead of taking one from the pool. Errors: local-refused, local-unresolvable,
// overloaded, or ErrNotSent.
func (h *attachment) channelFor(x *exchange, fresh bool) (*pooledChannel, *relay.Error) {
	heard, limit := h.t.Heard(), probeAfter
	if h.lazy {
		limit = probeAfterLazy
	}
	fresh = fresh || heard > limit
	if !fresh {
		if l := h.pool.take(x.req.caller); l != nil {
			return l, nil
		}
	}
	return h.open(x.d.base, x)
}

// open makes a new channel.
func (h *attachment) open(ctx context.Context, x *exchange) (*pooledChannel, *relay.Error) {
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	asked := time.Now()
	ch, err := h.t.Open(ctx, x.origin)
	if err == nil {
		return newPooledChannel(x.d, ch), nil
	}
	if ctx.Err() != nil && h.t.Heard() >= time.Since(asked) {
		h.onOpenTimeout()
	}
	return nil, openError(err)
}

func openError(err error) *relay.Error {
	var e *relay.Error
	if errors.As(err, &e) {
		switch e.Code {
		case relay.CodeLocalRefused, relay.CodeLocalUnresolvable, relay.CodeLocalTimeout:
			return e
		case relay.CodeOverloaded:
			if e.RetryAfter == 0 {
				c := *e
				c.RetryAfter = retryAfter
				e = &c
			}
			return e
		}
	}
	return relay.ErrNotSent
}

// staleNow is isStale for callers that do not hold st.mu.
func (h *attachment) staleNow() bool {
	h.st.mu.Lock()
	defer h.st.mu.Unlock()
	return h.isStale()
}
