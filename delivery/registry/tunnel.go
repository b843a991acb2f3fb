package registry

import (
	"context"
	"maps"
	"slices"
	"time"

	"relay"
)

// tunnels connects the registry with the store's records of all tunnels: it writes the tunnels that
// this node has attached and lost, and reads those of other nodes. Requests never wait for these reads
// and writes. While the store is down, reads and writes wait, and the last known tunnels stay in force.
type tunnels struct {
	wake   chan struct{}
	writes workList[relay.TunnelWrite] // writes that are not stored yet
	queues workList[bool]              // aliases whose queue has changed, and whose tunnel is at a node that this one cannot reach
	reads  workList[chan struct{}]     // aliases whose tunnel is to be read, 0 = all; each channel is closed after its read
}

const (
	tunnelWait  = 2 * time.Second // time limit of one call of the store
	tunnelRetry = time.Second     // longest pause before a failed call is repeated
	unheard     = time.Minute     // a node that was silent for longer counts as not connected: connected nodes send once a second
)

// write schedules the write w, merged with an earlier write of the alias.
func (t *tunnels) write(w relay.TunnelWrite) {
	l := &t.writes
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = map[int64]relay.TunnelWrite{}
	}
	mergeWrite(l.list, w)
	nudge(t.wake)
}

// mergeWrite puts a write in the place of the earlier write of the same alias. If the earlier one attaches the
// same tunnel, the new one also attaches it, because the store does not have the tunnel yet.
func mergeWrite(earlier map[int64]relay.TunnelWrite, w relay.TunnelWrite) {
	if old := earlier[w.Alias]; w.Op == relay.TunnelKeep && old.Op == relay.TunnelAttach && old.ID == w.ID {
		w.Op = old.Op
	}
	earlier[w.Alias] = w
}

// unwritten reports whether a write of the alias is still pending.
func (t *tunnels) unwritten(alias int64) bool {
	t.writes.mu.Lock()
	defer t.writes.mu.Unlock()
	_, waits := t.writes.list[alias]
	return waits
}

// announceQueue tells the node that has the alias' tunnel, through the store, that the queue has
// changed.
func (t *tunnels) announceQueue(alias int64) {
	t.queues.add(true, alias)
	nudge(t.wake)
}

// readLater reads the tunnel of an alias again; alias 0 means all. The returned channel is closed after
// the read.
func (t *tunnels) readLater(alias int64) <-chan struct{} {
	defer nudge(t.wake)
	return request(&t.reads, alias)
}

// KeepTunnels writes and reads records of tunnels until Base ends. It handles many records at a time, so that
// a thousand tunnels that attach at once cost few transactions.
func (r *Registry) KeepTunnels() {
	retry := time.NewTicker(tunnelRetry)
	defer retry.Stop()
	for {
		count := false
		select {
		case <-r.tunnels.wake:
		case <-retry.C:
			count = true
		case <-r.Base.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(r.Base), tunnelWait)
			defer cancel()
			// This stores the losses of tunnels that ended while the relay stopped.
			r.storeTunnels(last)
			r.storeRequests(last)
			return
		}
		r.storeTunnels(r.Base)
		if count {
			r.storeRequests(r.Base)
		}
		r.announceQueues()
		r.readTunnels()
	}
}

func (r *Registry) storeTunnels(ctx context.Context) {
	t := &r.tunnels
	writes := t.writes.take()
	if len(writes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tunnelWait)
	defer cancel()
	replaced, err := r.Store.StoreTunnels(ctx, slices.Collect(maps.Values(writes)))
	for _, old := range replaced {
		if st := r.ByID(old.Alias); st != nil {
			r.Store.NoteTakeover(st.alias.Load(), old.TunnelInfo, writes[old.Alias].TunnelInfo)
		}
	}
	if err != nil {
		t.writes.mu.Lock()
		defer t.writes.mu.Unlock()
		for _, w := range t.writes.list {
			mergeWrite(writes, w)
		}
		t.writes.list = writes
		if r.Base.Err() == nil {
			r.Log.Debug("cannot store tunnels yet", "aliases", len(writes), "err", err)
		}
		return
	}
	for id, w := range writes {
		st := r.ByID(id)
		if st == nil {
			continue
		}
		st.mu.Lock()
		st.tunnelVersion++
		st.mu.Unlock()
		if w.Op == relay.TunnelDetach {
			// This tunnel may have taken the alias from a tunnel at another node, which may still be there.
			t.readLater(id)
		} else {
			// The store lets this node claim attempts of the alias only after the write of the tunnel.
			st.dispatcher.Rescan()
		}
	}
}

// storeRequests stores request counts. They are for display only, so counts that cannot be stored are
// dropped.
func (r *Registry) storeRequests(ctx context.Context) {
	counts := map[string]int64{}
	r.Each(func(st *Alias) {
		if h := st.tunnel(); h != nil {
			if n := h.Requests.Swap(0); n > 0 {
				counts[h.Info.ID] = n
			}
		}
	})
	if len(counts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tunnelWait)
	defer cancel()
	if err := r.Store.AddRequests(ctx, counts); err != nil {
		r.Log.Debug("cannot store request counts", "err", err)
	}
}

func (r *Registry) announceQueues() {
	queues := slices.Sorted(maps.Keys(r.tunnels.queues.take()))
	if len(queues) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.Base, tunnelWait)
	defer cancel()
	if err := r.Store.AnnounceQueues(ctx, queues); err != nil {
		r.tunnels.queues.add(true, queues...)
	}
}

// readTunnels reads the records that readLater asked for.
func (r *Registry) readTunnels() {
	reads := r.tunnels.reads.take()
	if len(reads) == 0 {
		return
	}
	versions := map[int64]uint64{}
	note := func(st *Alias) {
		if st != nil {
			st.mu.Lock()
			defer st.mu.Unlock()
			versions[st.ID] = st.tunnelVersion
		}
	}
	_, all := reads[0]
	if all {
		r.Each(note)
	} else {
		for id := range reads {
			note(r.ByID(id))
		}
	}
	ctx, cancel := context.WithTimeout(r.Base, storeWait)
	defer cancel()
	records, since, err := r.storedTunnels(ctx, all, slices.Sorted(maps.Keys(versions)))
	if err != nil {
		if r.Base.Err() == nil {
			r.Log.Debug("cannot read tunnels yet", "aliases", len(versions), "err", err)
		}
		clear(versions)
		// The read has failed. It is tried again later, but the callers of readLater do not wait for that.
		for id := range reads {
			request(&r.tunnels.reads, id)
		}
	}
	for id, version := range versions {
		if st := r.ByID(id); st != nil {
			var rec *relay.TunnelRecord
			if found, exists := records[id]; exists {
				rec = &found
			}
			r.applyTunnel(st, version, rec, since[id])
		}
	}
	for _, done := range reads {
		close(done)
	}
}

// storedTunnels reads the tunnels of the given aliases, or of all, and the times since which these
// aliases have been in their states. A change between the two reads is announced, so both are then
// read again.
func (r *Registry) storedTunnels(ctx context.Context, all bool, ids []int64) (map[int64]relay.TunnelRecord, map[int64]time.Time, error) {
	var records map[int64]relay.TunnelRecord
	var err error
	if all {
		var list []relay.TunnelRecord
		list, err = r.Store.AllTunnels(ctx)
		records = make(map[int64]relay.TunnelRecord, len(list))
		for _, rec := range list {
			records[rec.Alias] = rec
		}
	} else {
		records, err = r.Store.TunnelsOf(ctx, ids)
	}
	if err != nil {
		return nil, nil, err
	}
	since, err := r.Store.LastOnline(ctx, ids)
	return records, since, err
}

// reasonClosed is the reason that Tunnel.Close gets when a user closed the tunnel.
const reasonClosed = "this tunnel was closed by an operator or in the dashboard"

// applyTunnel applies the store's record of the tunnel of an alias to this node; nil = the alias has no
// tunnel. since is the time of the last change of the tunnel; version is the version of the state
// before the store was asked.
func (r *Registry) applyTunnel(st *Alias, version uint64, rec *relay.TunnelRecord, since time.Time) {
	st.mu.Lock()
	moved, rest := r.setTunnel(st, version, rec, since)
	st.mu.Unlock()
	if rest != nil {
		rest()
	}
	if moved {
		r.TunnelChanged(st.ID)
	}
}

// setTunnel is the part of applyTunnel for which the caller holds st.mu. moved reports whether the
// change is visible to users. rest is the remaining work, which has to be called without the lock; nil
// = none is left.
func (r *Registry) setTunnel(st *Alias, version uint64, rec *relay.TunnelRecord, since time.Time) (moved bool, rest func()) {
	if st.tunnelVersion != version || r.tunnels.unwritten(st.ID) {
		// This node has a newer state, which is stored and then read again.
		return false, nil
	}
	here := rec != nil && rec.Node == r.Store.NodeID()
	if st.gone || !here && r.Remote == nil {
		// If there are no other nodes, a record of another node was left by a node that has ended.
		rec, here = nil, false
	}
	if moved = !since.IsZero() && !since.Equal(st.since); moved {
		st.since, st.wasOnline = since, true
	}
	h := st.attached
	// A node that has joined again has the same tunnels under a new node id.
	same := h != nil && rec != nil && rec.ID == h.Info.ID && (h.remote == nil || h.node == rec.Node)
	switch {
	case h == nil && rec == nil:
		return moved, nil
	case h != nil && h.remote == nil && (rec == nil || same):
		if !here {
			// The other nodes have declared this node dead in the meantime.
			st.since, moved = storedNow(), true
			h.write(relay.TunnelKeep)
		}
		if same && rec.State == relay.TunnelClosing {
			rest = func() { r.Background(func() { h.t.Close(reasonClosed) }) }
		}
		return moved, rest
	case same && rec.State == relay.TunnelOnline:
		return moved, func() { h.markAlive(silentPeer | silentOpen) }
	case same:
		return moved, func() { h.markStale(silentPeer) }
	}
	var next *Attachment
	if rec != nil && !here {
		next = r.remoteAttachment(st, *rec)
	}
	st.attached = next
	st.wasOnline = st.wasOnline || next != nil
	if h == nil && next == nil {
		// The record is of this node, but the tunnel has ended.
		st.since = storedNow()
		r.tunnels.write(relay.TunnelWrite{TunnelRecord: *rec, Op: relay.TunnelDetach, At: st.since})
	}
	if h == nil {
		return true, nil
	}
	return true, func() {
		h.Channels.Close()
		if h.remote == nil {
			// Another node ends the exchanges on its own tunnels.
			r.Background(func() { h.t.Close(relay.TakenOver) })
		}
	}
}

// remoteAttachment returns an attachment for the tunnel of another node. The caller holds st.mu.
func (r *Registry) remoteAttachment(st *Alias, rec relay.TunnelRecord) *Attachment {
	rec.Owner = st.alias.Load().Owner
	h := newAttachment(st, r.Remote(rec))
	if rec.State != relay.TunnelOnline {
		h.stale = silentPeer
	}
	if h.t.Heard() > unheard {
		// Whether the other node has been silent for too long has to be checked here. NodeReachable is called only
		// when a node becomes reachable or unreachable, and that may have been before this attachment existed.
		h.stale |= unreachable
	}
	if h.stale != 0 {
		h.cutAt = storedNow()
		h.endLost()
	}
	return h
}

// NodeReachable notes whether the tunnels of another node can be used. While they cannot, requests for
// them are queued.
func (r *Registry) NodeReachable(node string, reachable bool) {
	r.Each(func(st *Alias) {
		h := st.tunnel()
		switch {
		case h == nil || h.remote == nil || h.node != node:
			return
		case reachable:
			h.markAlive(unreachable | silentNode)
			return
		}
		h.markStale(unreachable)
		if n := st.Queue.Len(); n > 0 {
			// Earlier wake-ups may not have reached that node.
			r.tunnels.announceQueue(st.ID)
		}
	})
}

// ReadTunnels reads the tunnels of all aliases again, and stores those tunnels of this node that the store
// does not have. It is needed after other nodes have declared this node dead: this node then has a new id, under
// which the store does not have its tunnels yet.
func (r *Registry) ReadTunnels() { r.tunnels.readLater(0) }

// ReadTunnel reads the tunnel of one alias again. The returned channel is closed after the read.
func (r *Registry) ReadTunnel(alias int64) <-chan struct{} { return r.tunnels.readLater(alias) }

// WakeQueue checks the queue of an alias whose tunnel is on this node. Another node asks this one to
// check after a change of the queue.
func (r *Registry) WakeQueue(alias int64) {
	if st := r.ByID(alias); st != nil {
		r.Recount(alias)
		st.StartDispatch()
	}
}

// Count counts the tunnels of this node by state, and the queued attempts of all aliases. A paused
// alias counts by the state of its tunnel.
func (r *Registry) Count() (byState map[relay.TunnelState]int, queued int) {
	byState = map[relay.TunnelState]int{}
	r.Each(func(st *Alias) {
		queued += st.Queue.Len()
		st.mu.Lock()
		defer st.mu.Unlock()
		switch {
		case st.attached == nil, st.attached.remote != nil:
		case st.attached.stale != 0:
			byState[relay.TunnelStale]++
		default:
			byState[relay.TunnelOnline]++
		}
	})
	return byState, queued
}

// Channels returns the number of open channels, idle ones included.
func (r *Registry) Channels() int { return int(r.open.Load()) }

// CloseIdle closes the idle channels of all tunnels, and makes the tunnels keep no further ones.
func (r *Registry) CloseIdle() {
	r.Each(func(st *Alias) {
		if h := st.tunnel(); h != nil {
			h.Channels.Close()
		}
	})
}
