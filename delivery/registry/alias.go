package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// Alias is one alias with its tunnel and its queue. Its methods are safe for concurrent use.
type Alias struct {
	ID          int64
	Queue       QueueCount
	StorageFull atomic.Bool // the store has refused a request of the alias because it has no space
	Rejects     MinuteCount // refused requests of the current minute

	r          *Registry
	alias      atomic.Pointer[relay.Alias]
	owner      atomic.Pointer[owner] // the account that owns the alias
	secrets    atomic.Pointer[relay.OpenSecrets]
	dispatcher Dispatcher

	mu        sync.Mutex
	gone      bool // the alias was removed
	attached  *Attachment
	since     time.Time // when the current state began; all nodes read it from the store
	wasOnline bool      // a tunnel was attached at some time
	// tunnelVersion is raised with each change of attached that this node makes.
	tunnelVersion uint64
}

// MinuteCount counts the calls of Add in one minute. The first call after that minute begins the next one. It
// is safe for concurrent use.
type MinuteCount struct {
	mu    sync.Mutex
	since time.Time
	n     int
}

// Add returns the number of calls in this minute, including this call.
func (c *MinuteCount) Add() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.since) >= time.Minute {
		c.since, c.n = now, 0
	}
	c.n++
	return c.n
}

// Current returns the alias with its present settings.
func (st *Alias) Current() *relay.Alias { return st.alias.Load() }

// WasOnline reports whether the alias of a lower-case label ever had a tunnel, and returns
// its owner. It answers from memory.
func (r *Registry) WasOnline(label string) (owner int64, ok bool) {
	st := r.ByLabel(label)
	if st == nil {
		return 0, false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.alias.Load().Owner, st.wasOnline && !st.gone
}

// tunnel returns the tunnel, even if it is stale; nil = there is none.
func (st *Alias) tunnel() *Attachment {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.attached
}

// Online returns the tunnel for new requests, and the context that ends when that tunnel
// is lost. The tunnel is nil while requests have to be queued.
func (st *Alias) Online() (*Attachment, context.Context) {
	if st.alias.Load().Settings.Paused {
		return nil, nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.attached == nil || st.attached.stale != 0 {
		return nil, nil
	}
	return st.attached, st.attached.lost
}

// storedNow returns the current time with the precision of the store.
func storedNow() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// status returns the current state, without the counts that only the store has.
func (st *Alias) status() relay.AliasStatus {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := relay.AliasStatus{State: relay.TunnelNever, Since: st.since}
	switch h := st.attached; {
	case h != nil && !st.alias.Load().Settings.Paused:
		s.State = relay.TunnelOnline
		if h.stale != 0 {
			s.State = relay.TunnelStale
			if h.remote != nil && h.stale&silentPeer == 0 {
				// The store does not know that this node cannot use the tunnel: the state stale began when this node
				// noticed it.
				s.Since = h.cutAt
			}
		}
		info := h.Info
		s.Tunnel = &info
	case st.wasOnline:
		s.State = relay.TunnelOffline
	}
	return s
}

// Status returns state, tunnel and queue of each of the aliases, in the same order. A paused alias
// counts as offline.
func (r *Registry) Status(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error) {
	ids := make([]int64, len(aliases))
	for i := range aliases {
		ids[i] = aliases[i].ID
	}
	stats, err := r.Store.QueueStats(ctx, ids)
	if err != nil {
		return nil, err
	}
	last, err := r.Store.LastEvents(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]relay.AliasStatus, len(aliases))
	for i, id := range ids {
		if st := r.ByID(id); st != nil {
			out[i] = st.status()
		} else {
			out[i].State = relay.TunnelNever
		}
		out[i].QueueStats, out[i].LastEventAt = stats[id], last[id]
	}
	return out, nil
}

// RemoteOwner returns the tunnel of the alias if another node has it; that node delivers the queue. awaits
// means that, according to the store, the tunnel is online there, even if this node cannot reach it.
func (st *Alias) RemoteOwner() (t relay.RemoteTunnel, awaits bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	h := st.attached
	if h == nil || h.remote == nil {
		return nil, false
	}
	return h.remote, h.stale&(silentPeer|silentOpen) == 0 && !st.alias.Load().Settings.Paused
}

// StartDispatch starts or wakes the dispatcher of the alias, at the node that has the tunnel.
func (st *Alias) StartDispatch() {
	if t, _ := st.RemoteOwner(); t == nil {
		st.dispatcher.Start()
	} else if !t.Wake() {
		st.r.tunnels.announceQueue(st.ID)
	}
}

// Secrets returns the decrypted secrets of the senders of the alias. It answers from memory.
func (st *Alias) Secrets() relay.OpenSecrets {
	if list := st.secrets.Load(); list != nil {
		return *list
	}
	return nil
}

// setSecrets replaces the secrets. An empty list is stored as nil, which saves memory: nearly all aliases have
// no secrets.
func (st *Alias) setSecrets(list relay.OpenSecrets) {
	if len(list) == 0 {
		st.secrets.Store(nil)
		return
	}
	st.secrets.Store(&list)
}

// changed applies a new value of an alias, and returns the alias' entry.
func (r *Registry) changed(a *relay.Alias) *Alias {
	var before relay.Settings
	known := r.ByID(a.ID)
	if known != nil {
		before = known.alias.Load().Settings
	}
	st := r.put(a)
	if known == nil {
		// Earlier reads of the tunnel and counts of the queue have skipped this alias, because the registry did not
		// have it yet.
		r.ReadTunnel(a.ID)
		r.Recount(a.ID)
	}
	now := a.Settings
	if before.Paused && !now.Paused || now.AutoDeliver && !before.AutoDeliver {
		st.StartDispatch()
	}
	if known != nil && before.Paused != now.Paused {
		// This reads from the store since when the alias has been in its new state.
		r.ReadTunnel(a.ID)
	}
	return st
}

// removed drops the tunnel of an alias that was removed.
func (st *Alias) removed() {
	st.mu.Lock()
	st.gone = true
	h := st.attached
	st.attached = nil
	st.mu.Unlock()
	if h != nil {
		h.markLost()
		st.r.Background(func() { h.t.Close(relay.AliasRemoved) })
	}
}
