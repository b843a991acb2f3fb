package delivery

import (
	"context"
	"errors"
	"time"

	"relay"
)

// hold is a tunnel's hold on an alias: what Attach gives to the side door, and
// where exchanges get their channels.
type hold struct {
	st   *aliasState
	t    relay.Tunnel
	info relay.TunnelInfo
	lazy bool
	slot *slots

	// Guarded by st.mu.
	lost       chan struct{} // closed while new and running exchanges must not use the tunnel
	isLost     bool
	stale      bool // the side door said so
	unanswered bool // a channel open was not answered
	detached   bool

	pool pool
}

// Attach makes t the tunnel of the alias at once. A tunnel that had it before is
// told "taken over by a newer connection"; what runs on it may finish.
func (d *Delivery) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	st := d.registry.find(d, a)
	h := &hold{st: st, t: t, info: t.Info(), lazy: t.LazyDial(), lost: make(chan struct{})}
	hard := channelsHardPlain
	if h.lazy {
		hard = channelsHardLazy
	}
	h.slot = newSlots(channelsPerTunnel, hard, crowd)
	h.pool.init(h)
	now := time.Now()
	st.mu.Lock()
	if st.gone {
		st.mu.Unlock()
		h.lose()
		d.background(func() { t.Close(relay.AliasRemoved) })
		return h
	}
	old := st.hold
	st.hold, st.since, st.ever = h, now, true
	st.mu.Unlock()
	d.noted.attached.Add(1)
	if old != nil {
		d.noted.takenOver.Add(1)
		d.store.NoteTakeover(a, old.info, h.info)
		old.pool.close()
		d.background(func() { old.t.Close("taken over by a newer connection") })
	}
	d.registry.touch(st.id, now)
	d.feed.tunnel(st.id)
	h.pool.refill()
	st.serve()
	return h
}

// Stale marks the peer as silent.
func (h *hold) Stale() { _ = h.fallSilent(&h.stale) }

// Online marks a stale tunnel as alive again.
func (h *hold) Online() {
	h.st.mu.Lock()
	was := h.silent()
	h.stale, h.unanswered = false, false
	current := h.st.hold == h
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
		h.st.serve()
	}
}

// Detach ends the hold. Also a hold that was taken over is told: what still runs on
// it then fails as tunnel-lost.
func (h *hold) Detach(graceful bool) {
	now := time.Now()
	h.st.mu.Lock()
	h.detached = true
	current := h.st.hold == h
	if current {
		h.st.hold, h.st.since = nil, now
	}
	h.st.mu.Unlock()
	if graceful {
		h.pool.close()
	} else {
		h.lose()
	}
	if current {
		h.st.d.registry.touch(h.st.id, now)
		h.st.d.feed.tunnel(h.st.id)
	}
}

// silent tells whether nothing may be sent; under st.mu.
func (h *hold) silent() bool { return h.stale || h.unanswered }

// lose fails what runs on the tunnel.
func (h *hold) lose() {
	h.st.mu.Lock()
	if !h.isLost {
		h.isLost = true
		close(h.lost)
	}
	h.st.mu.Unlock()
	h.pool.close()
}

// drop closes what is not in use.
func (h *hold) drop() { h.pool.close() }

// fallSilent sets one of the reasons for silence; false when it was set already.
func (h *hold) fallSilent(why *bool) bool {
	h.st.mu.Lock()
	if h.detached || *why {
		h.st.mu.Unlock()
		return false
	}
	first := !h.silent()
	*why = true
	if !h.isLost {
		h.isLost = true
		close(h.lost)
	}
	current := h.st.hold == h
	if first && current {
		h.st.since = time.Now()
	}
	h.st.mu.Unlock()
	h.pool.empty()
	if first && current {
		h.st.d.feed.tunnel(h.st.id)
	}
	return true
}

// unheard marks the tunnel as silent after a channel open that was not answered,
// and brings it back by itself once a byte of the peer arrives: the side door may
// not have missed one yet and so would not say Online.
func (h *hold) unheard() {
	if h.fallSilent(&h.unanswered) {
		h.st.d.background(h.listen)
	}
}

func (h *hold) listen() {
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
		over := h.detached || !h.unanswered
		byDoor := h.stale
		h.st.mu.Unlock()
		switch {
		case over:
			return
		case h.t.Heard() > 2*every:
		case byDoor:
			h.st.mu.Lock()
			h.unanswered = false // the side door has the word
			h.st.mu.Unlock()
			return
		default:
			h.Online()
			return
		}
	}
}

// take gives a channel for one exchange, with a place that release gives back.
// fresh asks for one that nobody used before. Errors: local-refused,
// local-unresolvable, overloaded, or ErrNotSent.
func (h *hold) take(x *exchange, fresh bool) (*line, *relay.Error) {
	heard, limit := h.t.Heard(), silence
	if h.lazy {
		limit = silenceLazy
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
func (h *hold) open(ctx context.Context, x *exchange) (*line, *relay.Error) {
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	asked := time.Now()
	ch, err := h.t.Open(ctx, x.origin)
	if err == nil {
		return newLine(x.d, ch), nil
	}
	if ctx.Err() != nil && h.t.Heard() >= time.Since(asked) {
		h.unheard()
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

// mute is silent for those who do not hold st.mu.
func (h *hold) mute() bool {
	h.st.mu.Lock()
	defer h.st.mu.Unlock()
	return h.silent()
}
