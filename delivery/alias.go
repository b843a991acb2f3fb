package delivery

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// aliasState is one alias with its tunnel and its queue.
type aliasState struct {
	d           *Delivery
	id          int64
	alias       atomic.Pointer[relay.Alias]
	owner       atomic.Pointer[owner] // its owner
	queue       queueCount
	storageFull atomic.Bool // the store has refused a request of the alias; see markStoreDegraded

	mu          sync.Mutex
	gone        bool // the alias was removed
	attached    *attachment
	since       time.Time // when the present state began
	wasOnline   bool      // a tunnel was attached at some time
	dispatching bool      // its dispatcher runs
	// tunnelVersion is raised with each change of attached that comes from this node.
	tunnelVersion uint64
	rescan        bool // the dispatcher has to read the queue once more before it ends
	wake          chan struct{}

	rejects rejectRate
}

// Alias returns the alias of a lower-case label, from memory.
func (d *Delivery) Alias(label string) (*relay.Alias, bool) {
	st := d.registry.byLabel(label)
	if st == nil {
		return nil, false
	}
	return st.alias.Load(), true
}

// WasOnline reports whether the alias of a lower-case label ever had a tunnel, and returns
// its owner. It answers from memory.
func (d *Delivery) WasOnline(label string) (owner int64, ok bool) {
	st := d.registry.byLabel(label)
	if st == nil {
		return 0, false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.alias.Load().Owner, st.wasOnline && !st.gone
}

// tunnel returns the tunnel, even if it is stale; nil = there is none.
func (st *aliasState) tunnel() *attachment {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.attached
}

// online returns the tunnel for new requests, and the channel that is closed when that tunnel
// is lost. The tunnel is nil while requests have to be queued.
func (st *aliasState) online() (*attachment, <-chan struct{}) {
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

// status returns the present state, without the counts that only the store has.
func (st *aliasState) status() relay.AliasStatus {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := relay.AliasStatus{State: relay.TunnelNever, Since: st.since}
	switch {
	case st.attached != nil && !st.alias.Load().Settings.Paused:
		s.State = relay.TunnelOnline
		if st.attached.stale != 0 {
			s.State = relay.TunnelStale
		}
		info := st.attached.info
		s.Tunnel = &info
	case st.wasOnline:
		s.State = relay.TunnelOffline
	}
	return s
}

// Status returns state, tunnel and queue of each of the aliases, in the same order. A paused alias
// counts as offline.
func (d *Delivery) Status(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error) {
	ids := make([]int64, len(aliases))
	for i := range aliases {
		ids[i] = aliases[i].ID
	}
	stats, err := d.store.QueueStats(ctx, ids)
	if err != nil {
		return nil, err
	}
	last, err := d.store.LastEvents(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]relay.AliasStatus, len(aliases))
	for i, id := range ids {
		if st := d.registry.byID(id); st != nil {
			out[i] = st.status()
		} else {
			out[i].State = relay.TunnelNever
		}
		out[i].QueueStats, out[i].LastEventAt = stats[id], last[id]
	}
	return out, nil
}

// changed applies a new value of an alias.
func (d *Delivery) changed(a *relay.Alias) {
	var before relay.Settings
	if st := d.registry.byID(a.ID); st != nil {
		before = st.alias.Load().Settings
	} else {
		d.tunnels.readLater(a.ID)
	}
	st := d.registry.put(d, a)
	now := a.Settings
	if before.Paused && !now.Paused || now.AutoDeliver && !before.AutoDeliver {
		st.startDispatch()
	}
	if before.Paused != now.Paused {
		st.mu.Lock()
		if st.attached != nil {
			st.since = time.Now()
		}
		st.mu.Unlock()
	}
}

// removed drops the tunnel of an alias that is gone.
func (st *aliasState) removed() {
	st.mu.Lock()
	st.gone = true
	h := st.attached
	st.attached = nil
	st.mu.Unlock()
	if h != nil {
		h.markLost()
		st.d.background(func() { h.t.Close(relay.AliasRemoved) })
	}
}
