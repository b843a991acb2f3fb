package delivery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"relay"
)

// registry keeps all aliases in memory, so that a request for a name that does not exist
// costs no query. Nothing outside registry.go, attachment.go and tunnel.go may assume that a
// tunnel is in this process.
type registry struct {
	mu     sync.RWMutex
	labels map[string]*aliasState
	ids    map[int64]*aliasState
	owners map[int64]*owner // those that have an alias

	// What keepAliases has to do.
	wake    chan struct{}
	reloads workList[chan struct{}] // closed when the alias has been read again
	counts  workList[bool]
}

// workList is what a background goroutine has to do, by alias.
type workList[V any] struct {
	mu   sync.Mutex
	list map[int64]V
}

func (w *workList[V]) add(v V, ids ...int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list == nil {
		w.list = map[int64]V{}
	}
	for _, id := range ids {
		w.list[id] = v
	}
}

// take empties the list.
func (w *workList[V]) take() map[int64]V {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// request adds an alias, and returns the channel that is closed when the work is done.
func request(w *workList[chan struct{}], id int64) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := w.list[id]
	if done == nil {
		done = make(chan struct{})
		if w.list == nil {
			w.list = map[int64]chan struct{}{}
		}
		w.list[id] = done
	}
	return done
}

// owner is an account that owns aliases.
type owner struct {
	aliases  int
	overflow *semaphore.Weighted // channels in use beyond those of each tunnel
}

func (r *registry) init() {
	r.labels, r.ids, r.owners = map[string]*aliasState{}, map[int64]*aliasState{}, map[int64]*owner{}
	r.wake = make(chan struct{}, 1)
}

// byLabel returns the alias of a lower-case label; nil when there is none.
func (r *registry) byLabel(label string) *aliasState {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.labels[label]
}

func (r *registry) byID(id int64) *aliasState {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.ids[id]
}

// alias returns the alias with an id; nil when it is gone.
func (r *registry) alias(id int64) *relay.Alias {
	if st := r.byID(id); st != nil {
		return st.alias.Load()
	}
	return nil
}

// each calls f with every alias, without the lock of the registry.
func (r *registry) each(f func(*aliasState)) {
	r.mu.RLock()
	all := slices.Collect(maps.Values(r.ids))
	r.mu.RUnlock()
	for _, st := range all {
		f(st)
	}
}

// put stores a as the current value of its alias and returns the state of the alias.
func (r *registry) put(d *Delivery, a *relay.Alias) *aliasState {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owners[a.Owner]
	if o == nil {
		o = &owner{overflow: semaphore.NewWeighted(overflowPerAccount)}
		r.owners[a.Owner] = o
	}
	o.aliases++
	st := r.ids[a.ID]
	if st == nil {
		st = &aliasState{d: d, id: a.ID, since: a.LastOnlineAt, wasOnline: !a.LastOnlineAt.IsZero(), wake: make(chan struct{}, 1)}
		r.ids[a.ID] = st
	} else {
		r.forget(st)
	}
	st.owner.Store(o)
	st.alias.Store(a)
	r.labels[a.Name] = st
	return st
}

// find returns the state of an alias that the registry may not contain yet.
func (r *registry) find(d *Delivery, a *relay.Alias) *aliasState {
	if st := r.byID(a.ID); st != nil {
		return st
	}
	st := r.put(d, a)
	d.tunnels.readLater(a.ID)
	r.readAgain(a.ID) // a may be outdated, and its alias removed
	return st
}

func (r *registry) remove(id int64) *aliasState {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.ids[id]
	if st == nil {
		return nil
	}
	delete(r.ids, id)
	r.forget(st)
	return st
}

// forget removes the name and the owner that an alias has now. The caller holds mu.
func (r *registry) forget(st *aliasState) {
	a := st.alias.Load()
	if r.labels[a.Name] == st {
		delete(r.labels, a.Name)
	}
	if o := r.owners[a.Owner]; o.aliases == 1 {
		delete(r.owners, a.Owner)
	} else {
		o.aliases--
	}
}

// readAgain asks keepAliases to read an alias from the store. The returned channel is
// closed once that is done.
func (r *registry) readAgain(id int64) <-chan struct{} {
	defer nudge(r.wake)
	return request(&r.reloads, id)
}

// recount asks keepAliases to count the queues of aliases again.
func (r *registry) recount(ids ...int64) {
	r.counts.add(true, ids...)
	nudge(r.wake)
}

func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// keepAliases reads aliases and counts queues for the registry, one query at a time.
func (d *Delivery) keepAliases() {
	r := &d.registry
	var pause <-chan time.Time // of counting, which takes at most a tenth of the time; nil = none
	for {
		select {
		case <-r.wake:
		case <-pause:
			pause = nil
		case <-d.base.Done():
			return
		}
		for id, done := range r.reloads.take() {
			d.reload(id)
			close(done)
		}
		if pause != nil {
			continue
		}
		begun := time.Now()
		if d.recountAll() {
			pause = time.After(min(9*time.Since(begun), longestPause))
		}
	}
}

// reload reads an alias and applies what has changed.
func (d *Delivery) reload(id int64) {
	ctx, cancel := context.WithTimeout(d.base, storeWait)
	defer cancel()
	a, err := d.store.AliasByID(ctx, id)
	switch {
	case err == nil:
		d.changed(a)
	case errors.Is(err, relay.ErrNotFound):
		if st := d.registry.remove(id); st != nil {
			st.removed()
		}
	case d.base.Err() == nil:
		d.log.Error("alias not read again", "alias", id, "error", err)
		time.AfterFunc(time.Second, func() { d.registry.readAgain(id) })
	}
}

// recountAll counts the queues that recount was called for. It reports whether it has asked
// the store.
func (d *Delivery) recountAll() bool {
	r := &d.registry
	versions := map[int64]uint64{}
	for id := range r.counts.take() {
		if st := r.byID(id); st != nil {
			versions[id] = st.queue.version()
		}
	}
	if len(versions) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(d.base, storeWait)
	defer cancel()
	stats, err := d.store.QueueStats(ctx, slices.Collect(maps.Keys(versions)))
	var again []int64
	for id, version := range versions {
		switch st := r.byID(id); {
		case err != nil:
			again = append(again, id)
		case st == nil:
		case !st.queue.correct(version, stats[id].Queued, stats[id].QueuedBytes):
			again = append(again, id)
		case stats[id].Queued > 0:
			st.rescanQueue()
		}
	}
	if pause := recountPause; len(again) > 0 && d.base.Err() == nil {
		if err != nil {
			pause = time.Second
		}
		time.AfterFunc(pause, func() { r.recount(again...) })
	}
	return true
}

const (
	recountPause = 100 * time.Millisecond // after a count that came while the queue changed
	longestPause = 5 * time.Second
)
