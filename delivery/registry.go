package delivery

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"relay"
)

// registry keeps all aliases in memory, so that a request for a name that does not exist
// costs no query. Nothing outside registry.go, attachment.go and tunnel.go may assume that a
// tunnel is in this process.
type registry struct {
	mu       sync.RWMutex
	labels   map[string]*aliasState
	ids      map[int64]*aliasState
	accounts map[int64]*semaphore.Weighted // channels in use beyond those of each tunnel
	owned    map[int64]int                 // number of aliases by owner

	dirty struct {
		sync.Mutex
		reload map[int64]chan struct{} // closed when the alias has been read again
		count  map[int64]bool
	}
	wake chan struct{}
}

func (r *registry) init() {
	r.labels = map[string]*aliasState{}
	r.ids = map[int64]*aliasState{}
	r.accounts = map[int64]*semaphore.Weighted{}
	r.owned = map[int64]int{}
	r.dirty.reload = map[int64]chan struct{}{}
	r.dirty.count = map[int64]bool{}
	r.wake = make(chan struct{}, 1)
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

func (r *registry) each(f func(*aliasState)) {
	r.mu.RLock()
	all := make([]*aliasState, 0, len(r.ids))
	for _, st := range r.ids {
		all = append(all, st)
	}
	r.mu.RUnlock()
	for _, st := range all {
		f(st)
	}
}

// put stores a as the current value of its alias and returns the state of the alias.
func (r *registry) put(d *Delivery, a *relay.Alias) *aliasState {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.ids[a.ID]
	if st == nil {
		st = &aliasState{d: d, id: a.ID, since: a.LastOnlineAt, wasOnline: !a.LastOnlineAt.IsZero(), wake: make(chan struct{}, 1)}
		r.ids[a.ID] = st
	} else {
		r.forget(st)
	}
	st.alias.Store(a)
	r.labels[a.Name] = st
	r.owned[a.Owner]++
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
	if owner := st.alias.Load().Owner; r.owned[owner] == 0 {
		delete(r.accounts, owner) // requests that use some of it still release it
	}
	return st
}

// forget removes the name and the owner that an alias has now. The caller holds mu.
func (r *registry) forget(st *aliasState) {
	a := st.alias.Load()
	if r.labels[a.Name] == st {
		delete(r.labels, a.Name)
	}
	if r.owned[a.Owner]--; r.owned[a.Owner] == 0 {
		delete(r.owned, a.Owner)
	}
}

// account returns the semaphore of an owner.
func (r *registry) account(id int64) *semaphore.Weighted {
	r.mu.RLock()
	s := r.accounts[id]
	r.mu.RUnlock()
	if s != nil {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s = r.accounts[id]; s == nil {
		s = semaphore.NewWeighted(overflowPerAccount)
		r.accounts[id] = s
	}
	return s
}

// readAgain asks keepAliases to read an alias from the store. The returned channel is
// closed once that is done.
func (r *registry) readAgain(id int64) <-chan struct{} {
	r.dirty.Lock()
	defer r.dirty.Unlock()
	done := r.dirty.reload[id]
	if done == nil {
		done = make(chan struct{})
		r.dirty.reload[id] = done
	}
	r.nudge()
	return done
}

// recount asks keepAliases to count the queue of an alias again.
func (r *registry) recount(id int64) {
	r.dirty.Lock()
	defer r.dirty.Unlock()
	r.dirty.count[id] = true
	r.nudge()
}

func (r *registry) nudge() { nudge(r.wake) }

func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// keepAliases reads aliases and counts queues for the registry, one query at a time.
func (d *Delivery) keepAliases() {
	defer d.workers.Done()
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
		r.dirty.Lock()
		reload := r.dirty.reload
		r.dirty.reload = map[int64]chan struct{}{}
		r.dirty.Unlock()
		for id, done := range reload {
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
	r.dirty.Lock()
	ids := make([]int64, 0, len(r.dirty.count))
	versions := make([]uint64, 0, len(r.dirty.count))
	for id := range r.dirty.count {
		if st := r.byID(id); st != nil {
			ids = append(ids, id)
			versions = append(versions, st.queue.version())
		}
	}
	clear(r.dirty.count)
	r.dirty.Unlock()
	if len(ids) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(d.base, storeWait)
	defer cancel()
	stats, err := d.store.QueueStats(ctx, ids)
	if err != nil {
		if d.base.Err() == nil {
			time.AfterFunc(time.Second, func() {
				for _, id := range ids {
					r.recount(id)
				}
			})
		}
		return true
	}
	for i, id := range ids {
		if st := r.byID(id); st != nil && !st.queue.correct(versions[i], stats[id].Queued, stats[id].QueuedBytes) {
			time.AfterFunc(recountPause, func() { r.recount(id) })
		}
	}
	return true
}

const (
	recountPause = 100 * time.Millisecond
	longestPause = 5 * time.Second
)
