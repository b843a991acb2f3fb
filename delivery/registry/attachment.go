package registry

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"relay"
	"relay/delivery/kept"
	"relay/delivery/limiter"
	"relay/delivery/spares"
	"relay/waits"
)

// Attachment binds a tunnel to an alias. The SSH gate gets it from Attach, and exchanges open their
// channels on it. applyTunnel makes the Attachment for a tunnel of another node.
type Attachment struct {
	Info     relay.TunnelInfo
	Lazy     bool // the client dials the local server at the first byte of a channel
	Channels Channels
	Requests atomic.Int64 // requests that were sent through the tunnel and are not counted in the store yet

	st      *Alias
	t       relay.Tunnel
	remote  relay.RemoteTunnel // the same value as t, if another node has the tunnel; else nil
	node    string             // id of the node that has the tunnel, if it is another one
	limiter *limiter.Limiter

	// Guarded by st.mu.
	lost     context.Context // ended while new and running exchanges must not use the tunnel
	endLost  context.CancelFunc
	stale    silence   // reasons why nothing may be sent on the tunnel; 0 = there is none
	cutAt    time.Time // when this node last found that it cannot use the tunnel of another node
	detached bool
}

const (
	maxChannelsPlain = 2000            // largest number of channels in use on a tunnel of plain ssh
	maxChannelsLazy  = 200             // the same for relay up, which accepts 256 channels, spares and closing ones included
	probeAfter       = 2 * time.Second // if the peer was silent for longer, a request does not take an idle channel: opening a new one tests the peer
	probeAfterLazy   = 2500 * time.Millisecond

	openTimeout = 1900 * time.Millisecond // longest wait for the answer to a channel open, so that a request for a silent tunnel is queued and stored after at most 2 s
	closeTime   = 50 * time.Millisecond   // pause after idle channels were closed for lack of file descriptors, in which the client closes its connections

	// RetryAfter is the time after which a caller may retry a request that got no slot.
	RetryAfter = limiter.RetryAfter
)

// silence is a set of reasons for being stale.
type silence uint8

const (
	silentPeer  silence = 1 << iota // the client is silent: the SSH gate called Stale, or the record of a tunnel of another node has another state than online
	silentOpen                      // the client did not answer the open of a channel
	silentNode                      // the node of a remote tunnel did not answer the open of a channel; that node may still reach the client
	unreachable                     // the node of a remote tunnel cannot be reached
)

func newAttachment(st *Alias, t relay.Tunnel) *Attachment {
	r := st.r
	h := &Attachment{st: st, t: t, Info: t.Info(), Lazy: t.LazyDial()}
	h.lost, h.endLost = context.WithCancel(context.Background())
	h.remote, _ = t.(relay.RemoteTunnel)
	if h.remote != nil {
		h.node = h.remote.Node()
	}
	if !h.Lazy {
		h.limiter = limiter.New(maxChannelsPlain)
		h.Channels = keptChannels{kept.New(kept.Counts{Open: &r.open, Kept: &r.kept}, func(why string) {
			r.Log.Info("connections to a local server are no longer reused", "alias", st.ID, "tunnel", h.Info.ID, "reason", why)
			if r.ReuseEnded != nil {
				r.ReuseEnded()
			}
		})}
		return h
	}
	h.limiter = limiter.New(maxChannelsLazy)
	silent := func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return h.stale != 0
	}
	h.Channels = spareChannels{spares.New(spares.Options{
		Remote: h.remote != nil, Open: t.Open, Silent: silent, Background: r.Background, Base: r.Base, Count: &r.open,
	})}
	return h
}

// write schedules a write of the tunnel's record, with the time since which the alias has been in its
// current state. The caller holds st.mu.
func (h *Attachment) write(op relay.TunnelOp) {
	w := relay.TunnelWrite{Op: op, TunnelRecord: relay.TunnelRecord{
		TunnelInfo: h.Info, Alias: h.st.ID, LazyDial: h.Lazy, State: relay.TunnelOnline,
	}, At: h.st.since}
	if h.stale != 0 {
		w.State = relay.TunnelStale
	}
	h.st.r.tunnels.write(w)
}

// Attach binds t to the alias at once; it cannot fail. The tunnel that had the alias
// before is closed with the reason "taken over by a newer connection", and the exchanges
// that run on it may finish.
func (r *Registry) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	st := r.Find(a)
	h := newAttachment(st, t)
	st.mu.Lock()
	if st.gone {
		st.mu.Unlock()
		h.markLost()
		r.Background(func() { t.Close(relay.AliasRemoved) })
		return h
	}
	old := st.attached
	st.attached, st.since, st.wasOnline = h, storedNow(), true
	st.tunnelVersion++
	h.write(relay.TunnelAttach)
	st.mu.Unlock()
	r.Attached(old != nil)
	if old != nil {
		r.Store.NoteTakeover(a, old.Info, h.Info)
		old.Channels.Close()
		r.Background(func() { old.t.Close(relay.TakenOver) })
	}
	r.TunnelChanged(st.ID)
	h.Channels.Refill()
	st.StartDispatch()
	return h
}

// Stale marks the peer as silent.
func (h *Attachment) Stale() { h.markStale(silentPeer) }

// Online marks a stale tunnel as alive again.
func (h *Attachment) Online() { h.markAlive(silentPeer | silentOpen) }

// markStale adds a reason for being stale. It returns false if the reason was already set, or
// the tunnel is detached.
func (h *Attachment) markStale(why silence) bool {
	h.st.mu.Lock()
	if h.detached || h.stale&why != 0 {
		h.st.mu.Unlock()
		return false
	}
	first := h.stale == 0
	h.stale |= why
	h.endExchanges()
	changed := first && h.stateChanged()
	h.st.mu.Unlock()
	h.Channels.CloseIdle()
	if changed {
		h.st.r.TunnelChanged(h.st.ID)
	}
	return true
}

// markAlive removes reasons for being stale. When none is left, the tunnel is online again.
func (h *Attachment) markAlive(reasons silence) {
	h.st.mu.Lock()
	was := h.stale
	h.stale &^= reasons
	changed := false
	if was != 0 && h.stale == 0 && !h.detached {
		h.lost, h.endLost = context.WithCancel(context.Background())
		changed = h.stateChanged()
	}
	h.st.mu.Unlock()
	if changed {
		h.st.r.TunnelChanged(h.st.ID)
		h.Channels.Refill()
		h.st.StartDispatch()
	}
}

// stateChanged notes that the tunnel has become stale or online, and informs the other nodes. It
// returns false if the tunnel no longer serves the alias. The caller holds st.mu.
func (h *Attachment) stateChanged() bool {
	if h.st.attached != h {
		return false
	}
	if h.remote != nil {
		// h.st.since stays as it is: it is the time that the node of the tunnel has stored.
		h.cutAt = storedNow()
		return true
	}
	h.st.since = storedNow()
	h.st.tunnelVersion++
	h.write(relay.TunnelKeep)
	return true
}

// endExchanges ends the context of the exchanges on the tunnel: those that run fail as tunnel-lost, unless they were
// upgraded or have sent no byte, and those that wait for a slot get ErrNotSent. The caller holds st.mu.
func (h *Attachment) endExchanges() {
	h.endLost()
}

// markLost ends the tunnel and the exchanges that run on it.
func (h *Attachment) markLost() {
	h.st.mu.Lock()
	h.endExchanges()
	h.st.mu.Unlock()
	h.Channels.Close()
}

// Acquire takes a slot of the tunnel for a request that another node passes on, and returns the function that
// releases the slot. It stops waiting for a slot when done is closed or the tunnel is lost.
func (h *Attachment) Acquire(done <-chan struct{}) (func(), *relay.Error) {
	h.st.mu.Lock()
	lost := h.lost
	h.st.mu.Unlock()
	s := h.Slot()
	if err := s.Acquire(0, lost.Done(), done); err != nil {
		return nil, err
	}
	return s.Release, nil
}

// Slot returns a slot of the tunnel, not acquired yet.
func (h *Attachment) Slot() limiter.Slot {
	return h.limiter.Slot(h.st.owner.Load().overflow, h.st.r.overflow)
}

// Detach ends the attachment, also that of a tunnel that was taken over. Unless graceful is set, the
// exchanges that still run on the tunnel fail as tunnel-lost.
func (h *Attachment) Detach(graceful bool) {
	h.st.mu.Lock()
	h.detached = true
	current := h.st.attached == h
	if current {
		h.st.attached, h.st.since = nil, storedNow()
		h.st.tunnelVersion++
		h.write(relay.TunnelDetach)
	}
	if !graceful {
		h.endExchanges()
	}
	h.st.mu.Unlock()
	h.Channels.Close()
	if current {
		h.st.r.TunnelChanged(h.st.ID)
	}
}

// awaitLiveness removes a reason for being stale once the peer sends a byte. It is needed because the
// SSH gate calls Online only for a tunnel that it has marked as stale itself.
func (h *Attachment) awaitLiveness(reason silence) {
	const every = 250 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-h.st.r.Base.Done():
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

// Remote reports whether another node has the tunnel.
func (h *Attachment) Remote() bool { return h.remote != nil }

// Channel returns a channel for a request of a caller at origin; caller is nil for replays and queued
// deliveries. If fresh is set, Channel opens a new channel instead of taking one from the pool. If the client
// refuses a channel while many are open, Channel closes some idle ones and tries again, because a client
// without a free file descriptor refuses, too: OpenSSH then reports that a name does not resolve. Errors:
// local-refused, local-unresolvable, overloaded, ErrNotSent, or ErrTunnelSlow.
func (h *Attachment) Channel(caller relay.Caller, origin netip.AddrPort, fresh bool) (Channel, *relay.Error) {
	limit := probeAfter
	if h.Lazy {
		limit = probeAfterLazy
	}
	if !fresh && h.t.Heard() <= limit {
		if l := h.Channels.Take(caller); l != nil {
			return l, nil
		}
	}
	l, err := h.open(origin)
	if isRefusal(err) && h.Channels.Reduce() {
		time.Sleep(closeTime)
		l, err = h.open(origin)
	}
	if isRefusal(err) && h.replaced() {
		// The client refused the channel because it no longer has the forward.
		return nil, relay.ErrNotSent
	}
	return l, err
}

func isRefusal(err *relay.Error) bool {
	return err != nil && (err.Code == relay.CodeLocalRefused || err.Code == relay.CodeLocalUnresolvable)
}

// replaced reports whether the alias has lost this tunnel or has another one.
func (h *Attachment) replaced() bool { return h.st.tunnel() != h }

func (h *Attachment) open(origin netip.AddrPort) (Channel, *relay.Error) {
	r := h.st.r
	ctx, cancel := waits.WithTimeout(r.Base, openTimeout)
	defer cancel()
	asked := time.Now()
	ch, err := h.t.Open(ctx, origin)
	if err == nil {
		return h.Channels.New(ch), nil
	}
	clientSilent := errors.Is(err, relay.ErrTunnelSilent)
	if clientSilent || ctx.Err() != nil && h.t.Heard() >= time.Since(asked) {
		why := silentOpen
		if h.remote != nil && !clientSilent {
			why = silentNode
		}
		if h.markStale(why) {
			r.Background(func() { h.awaitLiveness(why) })
		}
	}
	if errors.Is(err, relay.ErrTunnelMoved) {
		// The store's record of the alias names the tunnel that the alias has now.
		select {
		case <-r.ReadTunnel(h.st.ID):
		case <-time.After(time.Second):
		case <-r.Base.Done():
		}
	}
	return nil, openError(err)
}

// openError translates the error of a failed channel open into one for the caller.
func openError(err error) *relay.Error {
	var e *relay.Error
	if errors.As(err, &e) {
		switch e.Code {
		case relay.CodeLocalRefused, relay.CodeLocalUnresolvable:
			return e
		case relay.CodeOverloaded:
			c := *e
			c.RetryAfter = cmp.Or(c.RetryAfter, RetryAfter)
			return &c
		case relay.ErrTunnelSlow.Code:
			return relay.ErrTunnelSlow
		}
	}
	return relay.ErrNotSent
}
