package delivery

import (
	"context"
	"errors"
	"time"

	"relay"
	"relay/delivery/pool"
)

// attachment binds a tunnel to an alias. The SSH gate gets it from Attach, and exchanges
// open their channels on it. That of a tunnel of another node is made by applyTunnel.
type attachment struct {
	st      *aliasState
	t       relay.Tunnel
	remote  relay.RemoteTunnel // t, if another node has it; else nil
	node    string             // id of that node
	info    relay.TunnelInfo
	lazy    bool
	limiter *limiter

	// Guarded by st.mu.
	lost         chan struct{} // closed while new and running exchanges must not use the tunnel
	isLost       bool
	stale        bool // the SSH gate called Stale, or the record of a remote tunnel says so
	openTimedOut bool // the client did not answer a channel open
	nodeSilent   bool // the node of a remote tunnel did not answer one; it may reach the client
	unreachable  bool // the node of a remote tunnel cannot be reached
	detached     bool

	pool *pool.Pool
}

func newAttachment(st *aliasState, t relay.Tunnel) *attachment {
	h := &attachment{st: st, t: t, info: t.Info(), lazy: t.LazyDial(), lost: make(chan struct{})}
	h.remote, _ = t.(relay.RemoteTunnel)
	if h.remote != nil {
		h.node = h.remote.Node()
	}
	hard := maxChannelsPlain
	if h.lazy {
		hard = maxChannelsLazy
	}
	h.limiter = newLimiter(pool.MaxInUse, hard)
	d := st.d
	h.pool = pool.New(pool.Options{
		Lazy: h.lazy, Remote: h.remote != nil, Open: t.Open, Silent: h.staleNow, Background: d.background, Base: d.base, Shared: &d.pools,
	})
	return h
}

// write returns a change of the tunnel's record. The caller holds st.mu or has made h.
func (h *attachment) write(op relay.TunnelOp) relay.TunnelWrite {
	w := relay.TunnelWrite{Op: op, TunnelRecord: relay.TunnelRecord{
		TunnelInfo: h.info, Alias: h.st.id, LazyDial: h.lazy, State: relay.TunnelOnline,
	}}
	if h.isStale() {
		w.State = relay.TunnelStale
	}
	if op != relay.TunnelKeep {
		w.At = time.Now()
	}
	return w
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
	d.tunnels.write(h.write(relay.TunnelAttach))
	st.mu.Unlock()
	d.counters.attached.Inc()
	if old != nil {
		d.counters.takenOver.Inc()
		d.store.NoteTakeover(a, old.info, h.info)
		old.pool.Close()
		d.background(func() { old.t.Close(reasonTakenOver) })
	}
	d.feed.Tunnel(st.id)
	h.pool.Refill()
	st.startDispatch()
	return h
}

// Stale marks the peer as silent.
func (h *attachment) Stale() {
	if h.markStale(&h.stale) {
		h.storeState()
	}
}

// Online marks a stale tunnel as alive again.
func (h *attachment) Online() {
	if h.markAlive(&h.stale, &h.openTimedOut) {
		h.storeState()
	}
}

// storeState lets the other nodes know that the tunnel is stale or online.
func (h *attachment) storeState() {
	h.st.mu.Lock()
	defer h.st.mu.Unlock()
	if h.st.attached == h && h.remote == nil {
		h.st.tunnelVersion++
		h.st.d.tunnels.write(h.write(relay.TunnelKeep))
	}
}

// setRemoteState applies the state that the node of a remote tunnel has stored.
func (h *attachment) setRemoteState(s relay.TunnelState) {
	if s == relay.TunnelOnline {
		h.markAlive(&h.stale, &h.openTimedOut)
	} else {
		h.markStale(&h.stale)
	}
}

// markAlive takes back reasons for being stale. It returns true if the tunnel was stale and
// is not any more.
func (h *attachment) markAlive(reasons ...*bool) bool {
	h.st.mu.Lock()
	was := h.isStale()
	for _, r := range reasons {
		*r = false
	}
	back := was && !h.isStale()
	current := h.st.attached == h
	if back && !h.detached {
		h.lost, h.isLost = make(chan struct{}), false
		if current {
			h.st.since = time.Now()
		}
	}
	h.st.mu.Unlock()
	if back && current {
		h.st.d.feed.Tunnel(h.st.id)
		h.pool.Refill()
		h.st.startDispatch()
	}
	return back
}

// Acquire takes one of the slots of the tunnel for a request of another node.
func (h *attachment) Acquire(done <-chan struct{}) (func(), *relay.Error) {
	d := h.st.d
	h.st.mu.Lock()
	lost := h.lost
	h.st.mu.Unlock()
	s := &channelSlot{tunnel: h.limiter, owner: d.registry.account(h.st.alias.Load().Owner), all: d.overflow}
	if err := s.acquire(0, lost, done); err != nil {
		return nil, err
	}
	return s.release, nil
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
		h.st.d.tunnels.write(h.write(relay.TunnelDetach))
	}
	h.st.mu.Unlock()
	if graceful {
		h.pool.Close()
	} else {
		h.markLost()
	}
	if current {
		h.st.d.feed.Tunnel(h.st.id)
	}
}

// isStale reports whether nothing may be sent on the tunnel. The caller holds st.mu.
func (h *attachment) isStale() bool {
	return h.stale || h.openTimedOut || h.nodeSilent || h.unreachable
}

// markLost fails the exchanges that run on the tunnel, as tunnel-lost.
func (h *attachment) markLost() {
	h.st.mu.Lock()
	if !h.isLost {
		h.isLost = true
		close(h.lost)
	}
	h.st.mu.Unlock()
	h.pool.Close()
}

// markStale sets one of the reasons for being stale. It returns false if that reason
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
	h.pool.CloseIdle()
	if first && current {
		h.st.d.feed.Tunnel(h.st.id)
	}
	return true
}

// onOpenTimeout marks the tunnel stale after the peer did not answer a channel open.
// clientSilent means that another node has reported its client as silent. The state ends by
// awaitLiveness once the peer sends a byte: the SSH gate calls Online only for a tunnel that
// it has marked stale itself.
func (h *attachment) onOpenTimeout(clientSilent bool) {
	reason := &h.openTimedOut
	if h.remote != nil && !clientSilent {
		reason = &h.nodeSilent
	}
	if h.markStale(reason) {
		h.st.d.background(func() { h.awaitLiveness(reason) })
	}
}

func (h *attachment) awaitLiveness(reason *bool) {
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
		over := h.detached || !*reason
		staleByGate := h.stale
		h.st.mu.Unlock()
		switch {
		case over:
			return
		case h.t.Heard() > 2*every:
		case staleByGate:
			h.st.mu.Lock()
			*reason = false // the SSH gate calls Online when the peer is back
			h.st.mu.Unlock()
			return
		case h.remote != nil:
			h.markAlive(reason)
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
func (h *attachment) channelFor(x *exchange, fresh bool) (*pool.Channel, *relay.Error) {
	heard, limit := h.t.Heard(), probeAfter
	if h.lazy {
		limit = probeAfterLazy
	}
	fresh = fresh || heard > limit
	if !fresh {
		if l := h.pool.Take(x.req.caller); l != nil {
			return l, nil
		}
	}
	return h.open(x.d.base, x)
}

// open makes a new channel. A client that refuses it while many are open gets a second try
// with fewer. OpenSSH says that a name does not resolve when it has no descriptor left.
func (h *attachment) open(ctx context.Context, x *exchange) (*pool.Channel, *relay.Error) {
	l, err := h.openOnce(ctx, x)
	refused := err != nil && (err.Code == relay.CodeLocalRefused || err.Code == relay.CodeLocalUnresolvable)
	if refused && h.pool.Reduce() {
		time.Sleep(pool.CloseTime)
		l, err = h.openOnce(ctx, x)
	}
	return l, err
}

func (h *attachment) openOnce(ctx context.Context, x *exchange) (*pool.Channel, *relay.Error) {
	ctx, cancel := context.WithTimeout(ctx, pool.OpenTimeout)
	defer cancel()
	asked := time.Now()
	ch, err := h.t.Open(ctx, x.origin)
	if err == nil {
		return h.pool.Channel(ch), nil
	}
	clientSilent := errors.Is(err, relay.ErrTunnelSilent)
	if clientSilent || ctx.Err() != nil && h.t.Heard() >= time.Since(asked) {
		h.onOpenTimeout(clientSilent)
	}
	if errors.Is(err, relay.ErrTunnelMoved) {
		h.moved()
	}
	return nil, openError(err)
}

// moved reads the record of a remote tunnel again, so that the exchange that learned of the
// end of the tunnel finds the next one.
func (h *attachment) moved() {
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case <-h.st.d.tunnels.readLater(h.st.id):
	case <-limit.C:
	case <-h.st.d.base.Done():
	}
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
