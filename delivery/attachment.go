package delivery

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"relay"
	"relay/delivery/pool"
)

// attachment binds a tunnel to an alias. The SSH gate gets it from Attach, and exchanges
// open their channels on it. That of a tunnel of another node is made by applyTunnel.
type attachment struct {
	st       *aliasState
	t        relay.Tunnel
	remote   relay.RemoteTunnel // t, if another node has it; else nil
	node     string             // id of that node
	info     relay.TunnelInfo
	lazy     bool
	limiter  *limiter
	pool     *pool.Pool
	requests atomic.Int64 // sent through the tunnel and not stored yet

	// Guarded by st.mu.
	lost     chan struct{} // closed while new and running exchanges must not use the tunnel
	stale    silence       // why nothing may be sent on the tunnel; 0 = it may
	detached bool
}

// silence is a set of reasons for being stale.
type silence uint8

const (
	silentPeer  silence = 1 << iota // the SSH gate called Stale, or the record of a remote tunnel says so
	silentOpen                      // the client did not answer a channel open
	silentNode                      // the node of a remote tunnel did not answer one; it may reach the client
	unreachable                     // the node of a remote tunnel cannot be reached
)

func newAttachment(st *aliasState, t relay.Tunnel) *attachment {
	d := st.d
	h := &attachment{st: st, t: t, info: t.Info(), lazy: t.LazyDial(), lost: make(chan struct{})}
	h.remote, _ = t.(relay.RemoteTunnel)
	if h.remote != nil {
		h.node = h.remote.Node()
	}
	h.limiter = &limiter{soft: pool.MaxInUse, hard: maxChannelsPlain}
	if h.lazy {
		h.limiter.hard = maxChannelsLazy
	}
	silent := func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return h.stale != 0
	}
	h.pool = pool.New(pool.Options{
		Lazy: h.lazy, Remote: h.remote != nil, Open: t.Open, Silent: silent, Background: d.background, Base: d.base, Shared: &d.pools,
	})
	return h
}

// write stores a change of the tunnel's record later. The caller holds st.mu.
func (h *attachment) write(op relay.TunnelOp) {
	w := relay.TunnelWrite{Op: op, TunnelRecord: relay.TunnelRecord{
		TunnelInfo: h.info, Alias: h.st.id, LazyDial: h.lazy, State: relay.TunnelOnline,
	}}
	if h.stale != 0 {
		w.State = relay.TunnelStale
	}
	if op != relay.TunnelKeep {
		w.At = time.Now()
	}
	h.st.d.tunnels.write(w)
}

// Attach binds t to the alias at once; it cannot fail. The tunnel that had the alias
// before is closed with the reason "taken over by a newer connection", and the exchanges
// that run on it may finish.
func (d *Delivery) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	st := d.registry.find(d, a)
	h := newAttachment(st, t)
	st.mu.Lock()
	if st.gone {
		st.mu.Unlock()
		h.markLost()
		d.background(func() { t.Close(relay.AliasRemoved) })
		return h
	}
	old := st.attached
	st.attached, st.since, st.wasOnline = h, time.Now(), true
	st.tunnelVersion++
	h.write(relay.TunnelAttach)
	st.mu.Unlock()
	d.counters.attached.Inc()
	if old != nil {
		d.counters.takenOver.Inc()
		d.store.NoteTakeover(a, old.info, h.info)
		old.pool.Close()
		d.background(func() { old.t.Close(relay.TakenOver) })
	}
	d.feed.Tunnel(st.id)
	h.pool.Refill()
	st.startDispatch()
	return h
}

// Stale marks the peer as silent.
func (h *attachment) Stale() { h.markStale(silentPeer) }

// Online marks a stale tunnel as alive again.
func (h *attachment) Online() { h.markAlive(silentPeer | silentOpen) }

// markStale adds a reason for being stale. It returns false if that was one already.
func (h *attachment) markStale(why silence) bool {
	h.st.mu.Lock()
	if h.detached || h.stale&why != 0 {
		h.st.mu.Unlock()
		return false
	}
	first := h.stale == 0
	h.stale |= why
	h.closeLost()
	changed := first && h.stateChanged()
	h.st.mu.Unlock()
	h.pool.CloseIdle()
	if changed {
		h.st.d.feed.Tunnel(h.st.id)
	}
	return true
}

// markAlive takes back reasons for being stale. Without any left, the tunnel is online again.
func (h *attachment) markAlive(reasons silence) {
	h.st.mu.Lock()
	was := h.stale
	h.stale &^= reasons
	changed := false
	if was != 0 && h.stale == 0 && !h.detached {
		h.lost = make(chan struct{})
		changed = h.stateChanged()
	}
	h.st.mu.Unlock()
	if changed {
		h.st.d.feed.Tunnel(h.st.id)
		h.pool.Refill()
		h.st.startDispatch()
	}
}

// stateChanged notes that the tunnel has become stale or online, and lets the other nodes
// know. It returns false if the tunnel does not serve the alias any more. The caller holds
// st.mu.
func (h *attachment) stateChanged() bool {
	if h.st.attached != h {
		return false
	}
	h.st.since = time.Now()
	if h.remote == nil {
		h.st.tunnelVersion++
		h.write(relay.TunnelKeep)
	}
	return true
}

// closeLost fails the exchanges that run on the tunnel, as tunnel-lost. The caller holds
// st.mu.
func (h *attachment) closeLost() {
	if !closed(h.lost) {
		close(h.lost)
	}
}

// markLost ends the tunnel and what runs on it.
func (h *attachment) markLost() {
	h.st.mu.Lock()
	h.closeLost()
	h.st.mu.Unlock()
	h.pool.Close()
}

// Acquire takes one of the slots of the tunnel for a request of another node.
func (h *attachment) Acquire(done <-chan struct{}) (func(), *relay.Error) {
	h.st.mu.Lock()
	lost := h.lost
	h.st.mu.Unlock()
	s := h.slot()
	if err := s.acquire(0, lost, done); err != nil {
		return nil, err
	}
	return s.release, nil
}

// slot returns a slot to acquire.
func (h *attachment) slot() channelSlot {
	return channelSlot{tunnel: h.limiter, owner: h.st.owner.Load().overflow, all: h.st.d.overflow}
}

// Detach ends the attachment. The SSH gate also calls it for a tunnel that was taken over:
// exchanges that still run on that tunnel then fail as tunnel-lost.
func (h *attachment) Detach(graceful bool) {
	h.st.mu.Lock()
	h.detached = true
	current := h.st.attached == h
	if current {
		h.st.attached, h.st.since = nil, time.Now()
		h.st.tunnelVersion++
		h.write(relay.TunnelDetach)
	}
	if !graceful {
		h.closeLost()
	}
	h.st.mu.Unlock()
	h.pool.Close()
	if current {
		h.st.d.feed.Tunnel(h.st.id)
	}
}

// awaitLiveness takes a reason for being stale back once the peer sends a byte: the SSH gate
// calls Online only for a tunnel that it has marked stale itself.
func (h *attachment) awaitLiveness(reason silence) {
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
		over := h.st.attached != h || h.stale&reason == 0
		h.st.mu.Unlock()
		switch {
		case over:
			return
		case h.t.Heard() <= 2*every:
			h.markAlive(reason)
			return
		}
	}
}

// channelFor returns a channel for the exchange. With fresh set, it opens a new one instead
// of taking one from the pool. A client that refuses it while many are open gets a second try
// with fewer: OpenSSH says that a name does not resolve when it has no descriptor left.
// Errors: local-refused, local-unresolvable, overloaded, or ErrNotSent.
func (h *attachment) channelFor(x *exchange, fresh bool) (*pool.Channel, *relay.Error) {
	limit := probeAfter
	if h.lazy {
		limit = probeAfterLazy
	}
	if !fresh && h.t.Heard() <= limit {
		if l := h.pool.Take(x.caller); l != nil {
			return l, nil
		}
	}
	l, err := h.open(x)
	refused := err != nil && (err.Code == relay.CodeLocalRefused || err.Code == relay.CodeLocalUnresolvable)
	if refused && h.pool.Reduce() {
		time.Sleep(pool.CloseTime)
		return h.open(x)
	}
	return l, err
}

func (h *attachment) open(x *exchange) (*pool.Channel, *relay.Error) {
	d := h.st.d
	ctx, cancel := context.WithTimeout(d.base, pool.OpenTimeout)
	defer cancel()
	asked := time.Now()
	ch, err := h.t.Open(ctx, x.origin)
	if err == nil {
		return h.pool.Channel(ch), nil
	}
	clientSilent := errors.Is(err, relay.ErrTunnelSilent)
	if clientSilent || ctx.Err() != nil && h.t.Heard() >= time.Since(asked) {
		why := silentOpen
		if h.remote != nil && !clientSilent {
			why = silentNode
		}
		if h.markStale(why) {
			d.background(func() { h.awaitLiveness(why) })
		}
	}
	if errors.Is(err, relay.ErrTunnelMoved) { // the record tells of the next tunnel
		select {
		case <-d.tunnels.readLater(h.st.id):
		case <-time.After(time.Second):
		case <-d.base.Done():
		}
	}
	return nil, openError(err)
}

// openError returns what the error of a channel open means to a caller.
func openError(err error) *relay.Error {
	var e *relay.Error
	if errors.As(err, &e) {
		switch e.Code {
		case relay.CodeLocalRefused, relay.CodeLocalUnresolvable, relay.CodeLocalTimeout:
			return e
		case relay.CodeOverloaded:
			c := *e
			c.RetryAfter = cmp.Or(c.RetryAfter, retryAfter)
			return &c
		}
	}
	return relay.ErrNotSent
}
