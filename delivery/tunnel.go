package delivery

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"relay"
)

// tunnels connects the registry with the store's records of all tunnels: what this node has
// attached and lost is written, and what other nodes have is read. Requests never wait for
// either. While the store is away, both wait and the last known tunnels stay in force.
type tunnels struct {
	mu       sync.Mutex
	writes   map[int64]relay.TunnelWrite // not stored yet, by alias
	queues   map[int64]bool              // aliases whose queue the unreachable node of their tunnel has to look at
	requests map[string]int64            // not stored yet, by tunnel id
	flush    time.Time                   // requests are stored after this time
	reads    map[int64]chan struct{}     // aliases whose tunnel is to be read; closed once that is done
	readAll  bool
	wake     chan struct{}
}

const (
	tunnelWait    = 2 * time.Second // limit of one call of the store
	tunnelRetry   = time.Second     // such a call that has failed is repeated after so long, or earlier
	requestsEvery = 5 * time.Second // pause between two updates of the numbers of requests
)

func (t *tunnels) init() {
	t.writes, t.requests, t.reads = map[int64]relay.TunnelWrite{}, map[string]int64{}, map[int64]chan struct{}{}
	t.queues = map[int64]bool{}
	t.readAll, t.wake = true, make(chan struct{}, 1)
}

// write stores w later, in place of an earlier write of the alias.
func (t *tunnels) write(w relay.TunnelWrite) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, waits := t.writes[w.Alias]; waits && w.Op == relay.TunnelKeep && old.Op == relay.TunnelAttach && old.ID == w.ID {
		w.Op, w.At = old.Op, old.At
	}
	t.writes[w.Alias] = w
	nudge(t.wake)
}

// count notes one request that was sent through a tunnel.
func (t *tunnels) count(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests[id]++
}

// announceQueue tells the node of the alias' tunnel through the store that the queue has
// changed.
func (t *tunnels) announceQueue(alias int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queues[alias] = true
	nudge(t.wake)
}

// readLater reads the tunnel of an alias again; alias 0 means all. The returned channel is
// closed once that is done.
func (t *tunnels) readLater(alias int64) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	done := t.reads[alias]
	if done == nil {
		done = make(chan struct{})
		t.reads[alias] = done
	}
	t.readAll = t.readAll || alias == 0
	nudge(t.wake)
	return done
}

// unwritten reports whether a write of the alias waits.
func (t *tunnels) unwritten(alias int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, waits := t.writes[alias]
	return waits
}

// keepTunnels writes and reads records of tunnels, many at a time: a thousand tunnels that
// come at once cost few transactions.
func (d *Delivery) keepTunnels() {
	defer d.workers.Done()
	retry := time.NewTicker(tunnelRetry)
	defer retry.Stop()
	for {
		select {
		case <-d.tunnels.wake:
		case <-retry.C:
		case <-d.base.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(d.base), tunnelWait)
			defer cancel()
			d.storeTunnels(last) // those that were lost while the relay stops
			d.storeRequests(last)
			return
		}
		d.storeTunnels(d.base)
		d.storeRequests(d.base)
		d.announceQueues(d.base)
		d.readTunnels(d.base)
	}
}

func (d *Delivery) storeTunnels(ctx context.Context) {
	t := &d.tunnels
	t.mu.Lock()
	writes := t.writes
	t.writes = map[int64]relay.TunnelWrite{}
	t.mu.Unlock()
	if len(writes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tunnelWait)
	defer cancel()
	replaced, err := d.store.StoreTunnels(ctx, slices.Collect(maps.Values(writes)))
	for i := range replaced {
		d.noteReplaced(&replaced[i], writes)
	}
	if err != nil {
		t.mu.Lock()
		for id, w := range writes {
			if newer, changed := t.writes[id]; !changed || newer.Op == relay.TunnelKeep && newer.ID == w.ID && w.Op == relay.TunnelAttach {
				if changed {
					w.State = newer.State
				}
				t.writes[id] = w
			}
		}
		t.mu.Unlock()
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
		switch w.Op {
		case relay.TunnelAttach, relay.TunnelKeep:
			st.rescanQueue() // the queue can be claimed only now
		case relay.TunnelDetach:
			t.readLater(id) // another node may have had the tunnel before, and have it still
		}
	}
}

func (d *Delivery) noteReplaced(old *relay.TunnelRecord, writes map[int64]relay.TunnelWrite) {
	if st := d.registry.byID(old.Alias); st != nil {
		by := writes[old.Alias]
		d.store.NoteTakeover(st.alias.Load(), old.TunnelInfo, by.TunnelInfo)
	}
}

// storeRequests stores the numbers of requests. They are for display, so that what cannot
// be stored is dropped.
func (d *Delivery) storeRequests(ctx context.Context) {
	t := &d.tunnels
	t.mu.Lock()
	now := time.Now()
	if len(t.requests) == 0 || now.Before(t.flush) && d.base.Err() == nil {
		t.mu.Unlock()
		return
	}
	counts := t.requests
	t.requests, t.flush = map[string]int64{}, now.Add(requestsEvery)
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, tunnelWait)
	defer cancel()
	if err := d.store.AddRequests(ctx, counts); err != nil {
		d.log.Debug("numbers of requests not stored", "error", err)
	}
}

func (d *Delivery) announceQueues(ctx context.Context) {
	t := &d.tunnels
	t.mu.Lock()
	queues := t.queues
	t.queues = map[int64]bool{}
	t.mu.Unlock()
	if len(queues) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tunnelWait)
	defer cancel()
	if err := d.store.AnnounceQueues(ctx, slices.Sorted(maps.Keys(queues))); err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		maps.Copy(t.queues, queues)
	}
}

// readTunnels reads the records that readLater asked for.
func (d *Delivery) readTunnels(ctx context.Context) {
	t := &d.tunnels
	t.mu.Lock()
	reads, all := t.reads, t.readAll
	t.reads, t.readAll = map[int64]chan struct{}{}, false
	t.mu.Unlock()
	if len(reads) == 0 && !all {
		return
	}
	versions := map[int64]uint64{}
	note := func(st *aliasState) {
		st.mu.Lock()
		defer st.mu.Unlock()
		versions[st.id] = st.tunnelVersion
	}
	if all {
		d.registry.each(note)
	} else {
		for id := range reads {
			if st := d.registry.byID(id); st != nil {
				note(st)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	records, err := d.tunnelRecords(ctx, all, versions)
	if err != nil {
		if d.base.Err() == nil {
			d.log.Debug("tunnels not read yet", "aliases", len(versions), "error", err)
		}
		t.mu.Lock()
		t.readAll = t.readAll || all
		t.mu.Unlock()
	}
	for id, version := range versions {
		rec, exists := records[id]
		switch st := d.registry.byID(id); {
		case st == nil:
		case err != nil:
			t.mu.Lock()
			if t.reads[id] == nil && !all {
				t.reads[id] = make(chan struct{})
			}
			t.mu.Unlock()
		case !exists:
			d.applyTunnel(st, version, nil)
		default:
			d.applyTunnel(st, version, &rec)
		}
	}
	for _, done := range reads {
		close(done)
	}
}

func (d *Delivery) tunnelRecords(ctx context.Context, all bool, versions map[int64]uint64) (map[int64]relay.TunnelRecord, error) {
	if !all {
		return d.store.TunnelsOf(ctx, slices.Sorted(maps.Keys(versions)))
	}
	list, err := d.store.AllTunnels(ctx)
	out := make(map[int64]relay.TunnelRecord, len(list))
	for _, r := range list {
		out[r.Alias] = r
	}
	return out, err
}

// Reasons of Tunnel.Close.
const (
	reasonTakenOver = "taken over by a newer connection"
	reasonClosed    = "this tunnel was closed by an operator or in the dashboard"
)

// applyTunnel makes what the store says of the tunnel of an alias true here: nil = it has no
// tunnel. version is that of the state before the store was asked.
func (d *Delivery) applyTunnel(st *aliasState, version uint64, rec *relay.TunnelRecord) {
	if rec != nil && d.opt.Remote == nil && rec.Node != d.store.NodeID() {
		rec = nil // of a node that has ended
	}
	st.mu.Lock()
	h := st.attached
	if st.tunnelVersion != version || d.tunnels.unwritten(st.id) {
		st.mu.Unlock()
		return // what is newer here is stored and read again
	}
	if st.gone {
		rec = nil
	}
	switch {
	case h != nil && h.remote == nil && (rec == nil || rec.ID == h.info.ID):
		lost := rec == nil || rec.Node != d.store.NodeID()
		closing := rec != nil && rec.State == relay.TunnelClosing
		st.mu.Unlock()
		if lost && !st.isGone() {
			d.tunnels.write(h.write(relay.TunnelKeep)) // this node was taken for dead meanwhile
		}
		if closing {
			d.background(func() { h.t.Close(reasonClosed) })
		}
		return
	case h != nil && rec != nil && rec.ID == h.info.ID:
		st.mu.Unlock()
		h.setRemoteState(rec.State)
		return
	case h == nil && rec == nil:
		st.mu.Unlock()
		return
	}
	var next *attachment
	if rec != nil && rec.Node != d.store.NodeID() {
		r := *rec
		r.Owner = st.alias.Load().Owner
		next = newAttachment(st, d.opt.Remote(r))
		next.stale = rec.State != relay.TunnelOnline
		next.isLost = next.stale
		if next.stale {
			close(next.lost)
		}
	}
	st.attached, st.since = next, time.Now()
	st.wasOnline = st.wasOnline || next != nil
	st.mu.Unlock()
	switch {
	case rec != nil && next == nil && h == nil: // of this node, and not there any more
		d.tunnels.write(relay.TunnelWrite{TunnelRecord: *rec, Op: relay.TunnelDetach, At: time.Now()})
	case h == nil:
	case h.remote == nil:
		h.pool.Close()
		d.background(func() { h.t.Close(reasonTakenOver) })
	case next == nil:
		h.markLost()
	default:
		h.pool.Close()
	}
	d.feed.Tunnel(st.id)
}

// NodeReachable says whether the tunnels of another node can be used. Requests for them are
// queued meanwhile.
func (d *Delivery) NodeReachable(node string, reachable bool) {
	d.registry.each(func(st *aliasState) {
		st.mu.Lock()
		h := st.attached
		st.mu.Unlock()
		if h == nil || h.remote == nil || h.node != node {
			return
		}
		if reachable {
			h.markAlive(&h.unreachable, &h.nodeSilent)
			return
		}
		h.markStale(&h.unreachable)
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
