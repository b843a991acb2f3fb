package delivery

import (
	"context"
	"maps"
	"slices"
	"time"

	"relay"
)

// tunnels connects the registry with the store's records of all tunnels: what this node has
// attached and lost is written, and what other nodes have is read. Requests never wait for
// either. While the store is away, both wait and the last known tunnels stay in force.
type tunnels struct {
	wake   chan struct{}
	writes workList[relay.TunnelWrite] // not stored yet
	queues workList[bool]              // aliases whose queue the unreachable node of their tunnel has to look at
	reads  workList[chan struct{}]     // aliases whose tunnel is to be read, 0 = all; closed once that is done
}

const (
	tunnelWait  = 2 * time.Second // limit of one call of the store
	tunnelRetry = time.Second     // such a call that has failed is repeated after so long, or earlier
	unheard     = time.Minute     // a node that was not heard of for so long is not connected: one that is speaks each second
)

// write stores w later, together with an earlier write of the alias.
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

// mergeWrite adds a write to earlier ones.
func mergeWrite(earlier map[int64]relay.TunnelWrite, w relay.TunnelWrite) {
	if old := earlier[w.Alias]; w.Op == relay.TunnelKeep && old.Op == relay.TunnelAttach && old.ID == w.ID {
		w.Op, w.At = old.Op, old.At
	}
	earlier[w.Alias] = w
}

// unwritten reports whether a write of the alias waits.
func (t *tunnels) unwritten(alias int64) bool {
	t.writes.mu.Lock()
	defer t.writes.mu.Unlock()
	_, waits := t.writes.list[alias]
	return waits
}

// announceQueue tells the node of the alias' tunnel through the store that the queue has
// changed.
func (t *tunnels) announceQueue(alias int64) {
	t.queues.add(true, alias)
	nudge(t.wake)
}

// readLater reads the tunnel of an alias again; alias 0 means all. The returned channel is
// closed once that is done.
func (t *tunnels) readLater(alias int64) <-chan struct{} {
	defer nudge(t.wake)
	return request(&t.reads, alias)
}

// keepTunnels writes and reads records of tunnels, many at a time: a thousand tunnels that
// come at once cost few transactions.
func (d *Delivery) keepTunnels() {
	retry := time.NewTicker(tunnelRetry)
	defer retry.Stop()
	for {
		count := false
		select {
		case <-d.tunnels.wake:
		case <-retry.C:
			count = true
		case <-d.base.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(d.base), tunnelWait)
			defer cancel()
			d.storeTunnels(last) // those that were lost while the relay stops
			d.storeRequests(last)
			return
		}
		d.storeTunnels(d.base)
		if count {
			d.storeRequests(d.base)
		}
		d.announceQueues()
		d.readTunnels()
	}
}

func (d *Delivery) storeTunnels(ctx context.Context) {
	t := &d.tunnels
	writes := t.writes.take()
	if len(writes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tunnelWait)
	defer cancel()
	replaced, err := d.store.StoreTunnels(ctx, slices.Collect(maps.Values(writes)))
	for _, old := range replaced {
		if st := d.registry.byID(old.Alias); st != nil {
			d.store.NoteTakeover(st.alias.Load(), old.TunnelInfo, writes[old.Alias].TunnelInfo)
		}
	}
	if err != nil {
		t.writes.mu.Lock()
		defer t.writes.mu.Unlock()
		for _, w := range t.writes.list {
			mergeWrite(writes, w)
		}
		t.writes.list = writes
		if d.base.Err() == nil {
			d.log.Debug("tunnels not stored yet", "aliases", len(writes), "error", err)
		}
		return
	}
	for id, w := range writes {
		st := d.registry.byID(id)
		if st == nil {
			continue
		}
		st.mu.Lock()
		st.tunnelVersion++
		st.mu.Unlock()
		if w.Op == relay.TunnelDetach {
			t.readLater(id) // another node may have had the tunnel before, and have it still
		} else {
			st.rescanQueue() // the queue can be claimed only now
		}
	}
}

// storeRequests stores the numbers of requests. They are for display, so that what cannot
// be stored is dropped.
func (d *Delivery) storeRequests(ctx context.Context) {
	counts := map[string]int64{}
	d.registry.each(func(st *aliasState) {
		if h := st.tunnel(); h != nil {
			if n := h.requests.Swap(0); n > 0 {
				counts[h.info.ID] = n
			}
		}
	})
	if len(counts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tunnelWait)
	defer cancel()
	if err := d.store.AddRequests(ctx, counts); err != nil {
		d.log.Debug("numbers of requests not stored", "error", err)
	}
}

func (d *Delivery) announceQueues() {
	queues := slices.Sorted(maps.Keys(d.tunnels.queues.take()))
	if len(queues) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(d.base, tunnelWait)
	defer cancel()
	if err := d.store.AnnounceQueues(ctx, queues); err != nil {
		d.tunnels.queues.add(true, queues...)
	}
}

// readTunnels reads the records that readLater asked for.
func (d *Delivery) readTunnels() {
	reads := d.tunnels.reads.take()
	if len(reads) == 0 {
		return
	}
	versions := map[int64]uint64{}
	note := func(st *aliasState) {
		if st != nil {
			st.mu.Lock()
			defer st.mu.Unlock()
			versions[st.id] = st.tunnelVersion
		}
	}
	_, all := reads[0]
	if all {
		d.registry.each(note)
	} else {
		for id := range reads {
			note(d.registry.byID(id))
		}
	}
	ctx, cancel := context.WithTimeout(d.base, storeWait)
	defer cancel()
	records := map[int64]relay.TunnelRecord{}
	var err error
	if all {
		var list []relay.TunnelRecord
		list, err = d.store.AllTunnels(ctx)
		for _, r := range list {
			records[r.Alias] = r
		}
	} else {
		records, err = d.store.TunnelsOf(ctx, slices.Sorted(maps.Keys(versions)))
	}
	if err != nil {
		if d.base.Err() == nil {
			d.log.Debug("tunnels not read yet", "aliases", len(versions), "error", err)
		}
		clear(versions)
		for id := range reads { // their readers wait no longer, but the records are read again
			request(&d.tunnels.reads, id)
		}
	}
	for id, version := range versions {
		if st := d.registry.byID(id); st != nil {
			var rec *relay.TunnelRecord
			if r, exists := records[id]; exists {
				rec = &r
			}
			d.applyTunnel(st, version, rec)
		}
	}
	for _, done := range reads {
		close(done)
	}
}

// reasonClosed is the reason of Tunnel.Close when a person closed the tunnel.
const reasonClosed = "this tunnel was closed by an operator or in the dashboard"

// applyTunnel makes what the store says of the tunnel of an alias true here: nil = it has no
// tunnel. version is that of the state before the store was asked.
func (d *Delivery) applyTunnel(st *aliasState, version uint64, rec *relay.TunnelRecord) {
	here := rec != nil && rec.Node == d.store.NodeID()
	st.mu.Lock()
	if st.gone || !here && d.opt.Remote == nil { // of a node that has ended
		rec, here = nil, false
	}
	if st.tunnelVersion != version || d.tunnels.unwritten(st.id) {
		st.mu.Unlock()
		return // what is newer here is stored and read again
	}
	h := st.attached
	// A node that has rejoined has its tunnels under another id of its own.
	same := h != nil && rec != nil && rec.ID == h.info.ID && (h.remote == nil || h.node == rec.Node)
	switch {
	case h == nil && rec == nil:
		st.mu.Unlock()
		return
	case h != nil && h.remote == nil && (rec == nil || same):
		if !here {
			h.write(relay.TunnelKeep) // this node was taken for dead meanwhile
		}
		st.mu.Unlock()
		if same && rec.State == relay.TunnelClosing {
			d.background(func() { h.t.Close(reasonClosed) })
		}
		return
	case same:
		st.mu.Unlock()
		if rec.State == relay.TunnelOnline {
			h.markAlive(silentPeer | silentOpen)
		} else {
			h.markStale(silentPeer)
		}
		return
	}
	var next *attachment
	if rec != nil && !here {
		r := *rec
		r.Owner = st.alias.Load().Owner
		next = newAttachment(st, d.opt.Remote(r))
		if rec.State != relay.TunnelOnline {
			next.stale = silentPeer
		}
		if next.t.Heard() > unheard { // NodeReachable tells changes only
			next.stale |= unreachable
		}
		if next.stale != 0 {
			close(next.lost)
		}
	}
	st.attached, st.since = next, time.Now()
	st.wasOnline = st.wasOnline || next != nil
	st.mu.Unlock()
	switch {
	case h == nil && next == nil: // the record is of this node, and the tunnel not there any more
		d.tunnels.write(relay.TunnelWrite{TunnelRecord: *rec, Op: relay.TunnelDetach, At: time.Now()})
	case h == nil:
	case h.remote == nil:
		h.pool.Close()
		d.background(func() { h.t.Close(relay.TakenOver) })
	default: // its node ends what runs on it when the client has gone
		h.pool.Close()
	}
	d.feed.Tunnel(st.id)
}

// NodeReachable says whether the tunnels of another node can be used. Requests for them are
// queued meanwhile.
func (d *Delivery) NodeReachable(node string, reachable bool) {
	d.registry.each(func(st *aliasState) {
		h := st.tunnel()
		switch {
		case h == nil || h.remote == nil || h.node != node:
			return
		case reachable:
			h.markAlive(unreachable | silentNode)
			return
		}
		h.markStale(unreachable)
		if n, _ := st.queue.get(); n > 0 { // the last wake-ups may be lost
			d.tunnels.announceQueue(st.id)
		}
	})
}

// ReadTunnels reads the tunnels of all aliases again, and stores those of this node that are
// missing: it was taken for dead meanwhile and has another id.
func (d *Delivery) ReadTunnels() { d.tunnels.readLater(0) }

// WakeQueue looks at the queue of an alias whose tunnel is here, on behalf of another node
// that has changed it.
func (d *Delivery) WakeQueue(alias int64) {
	if st := d.registry.byID(alias); st != nil {
		d.registry.recount(alias)
		st.startDispatch()
	}
}
