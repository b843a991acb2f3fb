// Package registry knows the tunnel of each alias. It keeps all aliases in memory with their settings,
// their tunnel and the length of their queue, and bounds the requests on each tunnel. It also keeps the
// store's records of all tunnels in step with the tunnels of this node.
package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"relay"
	"relay/delivery/limiter"
)

// Options configure a Registry.
type Options struct {
	Store Store
	Log   *slog.Logger

	// Remote returns a tunnel of another node, given the stored record of the tunnel; nil = there are no other
	// nodes.
	Remote func(relay.TunnelRecord) relay.RemoteTunnel
	// NewDispatcher returns the Dispatcher of an alias.
	NewDispatcher func(*Alias) Dispatcher
	// TunnelChanged is called when the state of the tunnel of an alias has changed.
	TunnelChanged func(alias int64)
	// ReuseEnded is called when the connections of a tunnel are no longer reused; nil = not called.
	ReuseEnded func()
	// Attached is called when a tunnel was attached to an alias. takenOver says that another tunnel had the
	// alias before.
	Attached func(takenOver bool)
	// Background runs a function in a goroutine of its own. It returns false when the relay
	// is stopping, and does not run it then.
	Background func(func()) bool
	Base       context.Context // ends when everything must stop
}

// Dispatcher delivers the queue of one alias. Its methods return at once and are safe for
// concurrent use.
type Dispatcher interface {
	// Start begins to deliver, or ends a pause.
	Start()
	// Rescan reads the queue once more, because the store has changed it. It does not end a pause: when the
	// dispatcher itself returns an attempt to the queue and pauses, the store reports that change, too.
	Rescan()
}

// Registry keeps all aliases in memory, so that a request for an unknown name costs no query. The
// tunnel of an alias may be at another node. Its methods are safe for concurrent use.
type Registry struct {
	Options

	mu     sync.RWMutex
	labels map[string]*Alias
	ids    map[int64]*Alias
	owners map[int64]*owner // accounts that own at least one alias

	wakeReads  chan struct{}
	reloads    workList[chan struct{}] // aliases for KeepAliases to read; each channel is closed when its alias was read
	wakeCounts chan struct{}
	counts     workList[bool] // aliases for KeepCounts to count

	tunnels  tunnels
	overflow *semaphore.Weighted // slots of all tunnels beyond the soft ones; see limiter.Limiter
	open     atomic.Int64        // open channels of all tunnels, idle ones included
	kept     atomic.Int64        // kept channels of all tunnels; see kept.Counts
}

// New makes a Registry without aliases; Load reads them.
func New(opt Options) *Registry {
	r := &Registry{
		Options: opt,
		labels:  map[string]*Alias{}, ids: map[int64]*Alias{}, owners: map[int64]*owner{},
		wakeReads: make(chan struct{}, 1), wakeCounts: make(chan struct{}, 1), tunnels: tunnels{wake: make(chan struct{}, 1)},
		overflow: semaphore.NewWeighted(limiter.OverflowInAll),
	}
	r.tunnels.readLater(0)
	return r
}

// Load reads the aliases and the counts of their queues.
func (r *Registry) Load(ctx context.Context) error {
	aliases, err := r.Store.AllAliases(ctx)
	if err != nil {
		return fmt.Errorf("read aliases: %w", err)
	}
	secrets, err := r.Store.AllOpenSecrets(ctx)
	if err != nil {
		return fmt.Errorf("read secrets of senders: %w", err)
	}
	for i := range aliases {
		r.put(&aliases[i]).setSecrets(secrets[aliases[i].ID])
	}
	stats, err := r.Store.AllQueueStats(ctx)
	if err != nil {
		return fmt.Errorf("read queues: %w", err)
	}
	for id, s := range stats {
		if st := r.ByID(id); st != nil {
			st.Queue.correct(st.Queue.version(), s.Queued, s.QueuedBytes)
		}
	}
	return nil
}

// workList holds the pending work of a background goroutine, by alias.
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

// take returns the list and leaves an empty one.
func (w *workList[V]) take() map[int64]V {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// request adds an alias, and returns the channel that is closed when the alias was read.
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
	queue    accountQueue
	overflow *semaphore.Weighted // slots of its tunnels beyond the soft ones; see limiter.Limiter
	upgraded *semaphore.Weighted // connections that are upgraded, or may be
}

// maxUpgraded is the maximum number of upgraded connections to the aliases of one account. These
// connections use no slot and have no time limit.
const maxUpgraded = 1000

// AcquireUpgrade takes a place for a connection that may be upgraded, and returns the function that
// gives it back; nil if the account that owns the alias has no place left.
func (st *Alias) AcquireUpgrade() (release func()) {
	s := st.owner.Load().upgraded
	if !s.TryAcquire(1) {
		return nil
	}
	return func() { s.Release(1) }
}

// ByLabel returns the alias of a lower-case label; nil if there is none.
func (r *Registry) ByLabel(label string) *Alias {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.labels[label]
}

// ByID returns the alias with an id; nil if there is none.
func (r *Registry) ByID(id int64) *Alias {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.ids[id]
}

// Alias returns the current value of the alias with an id; nil if there is none.
func (r *Registry) Alias(id int64) *relay.Alias {
	if st := r.ByID(id); st != nil {
		return st.alias.Load()
	}
	return nil
}

// Each calls f with every alias, without the lock of the registry.
func (r *Registry) Each(f func(*Alias)) {
	r.mu.RLock()
	all := slices.Collect(maps.Values(r.ids))
	r.mu.RUnlock()
	for _, st := range all {
		f(st)
	}
}

// put makes the value a the current one of its alias, and returns the entry of the alias.
func (r *Registry) put(a *relay.Alias) *Alias {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set(a)
}

// set does the same as put. The caller holds mu.
func (r *Registry) set(a *relay.Alias) *Alias {
	o := r.owners[a.Owner]
	if o == nil {
		o = &owner{overflow: semaphore.NewWeighted(limiter.OverflowPerAccount), upgraded: semaphore.NewWeighted(maxUpgraded)}
		r.owners[a.Owner] = o
	}
	o.aliases++
	st := r.ids[a.ID]
	if st == nil {
		st = &Alias{r: r, ID: a.ID, since: a.LastOnlineAt, wasOnline: !a.LastOnlineAt.IsZero()}
		st.dispatcher = r.NewDispatcher(st)
		r.ids[a.ID] = st
	} else {
		r.forget(st)
	}
	o.queue.own.Store(a.OwnerMaxQueue)
	st.Queue.setAccount(&o.queue)
	st.owner.Store(o)
	st.alias.Store(a)
	// A newer alias has a higher id. If the label belongs to a higher id, the alias of a was removed after a
	// was read, and its label was given to a newer alias.
	if has := r.labels[a.Name]; has == nil || has.ID < a.ID {
		r.labels[a.Name] = st
	}
	return st
}

// Find returns the entry of an alias, which it adds if the registry does not have it yet. a may be
// older than the value in the registry.
func (r *Registry) Find(a *relay.Alias) *Alias {
	r.mu.Lock()
	if st := r.ids[a.ID]; st != nil {
		r.mu.Unlock()
		return st
	}
	st := r.set(a)
	r.mu.Unlock()
	r.ReadTunnel(a.ID)
	r.Recount(a.ID)
	// The value in a may be outdated, and the alias may have been removed.
	r.ReadAgain(a.ID)
	return st
}

func (r *Registry) remove(id int64) *Alias {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.ids[id]
	if st == nil {
		return nil
	}
	delete(r.ids, id)
	r.forget(st)
	st.Queue.setAccount(nil)
	return st
}

// forget removes the current name and owner of an alias from the indexes. The caller holds mu.
func (r *Registry) forget(st *Alias) {
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

// ReadAgain asks KeepAliases to read an alias from the store, 0 = all aliases. The returned channel is
// closed after the read.
func (r *Registry) ReadAgain(id int64) <-chan struct{} {
	defer nudge(r.wakeReads)
	return request(&r.reloads, id)
}

// ReadAccountAgain asks KeepAliases to read the limits of an account. The store gives these limits with
// each alias of the account. ReadAccountAgain has several aliases read, because one of them may have
// been removed or transferred; each returned channel is closed when its alias was read.
func (r *Registry) ReadAccountAgain(account int64) (done []<-chan struct{}) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.owners[account] == nil {
		return nil
	}
	if r.owners[account].aliases > readAtOnce {
		return []<-chan struct{}{r.ReadAgain(0)}
	}
	for id, st := range r.ids {
		if st.alias.Load().Owner == account {
			done = append(done, r.ReadAgain(id))
		}
	}
	return done
}

// readAtOnce is the largest number of aliases of an account that are read one by one; for more, one query
// reads all aliases.
const readAtOnce = 16

// FullestQueue returns the highest used fraction of the queue limit among all accounts; 0 = none has a
// limit.
func (r *Registry) FullestQueue(limits QueueLimits) (most float64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, o := range r.owners {
		if limit := o.queue.limit(limits.Account); limit > 0 {
			most = max(most, float64(o.queue.n.Load())/float64(limit))
		}
	}
	return most
}

// Recount asks KeepCounts to count the queues of aliases again.
func (r *Registry) Recount(ids ...int64) {
	r.counts.add(true, ids...)
	nudge(r.wakeCounts)
}

func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// KeepAliases rereads aliases that may have changed, one query at a time, until the context Base ends.
func (r *Registry) KeepAliases() {
	for {
		select {
		case <-r.wakeReads:
		case <-r.Base.Done():
			return
		}
		for id, done := range r.reloads.take() {
			r.reload(id)
			close(done)
		}
	}
}

// KeepCounts counts queues, one query at a time and for at most a tenth of the time, until the context Base ends. It
// runs beside KeepAliases, so that a change of settings does not wait for a slow count.
func (r *Registry) KeepCounts() {
	var pause <-chan time.Time
	for {
		select {
		case <-r.wakeCounts:
		case <-pause:
			pause = nil
		case <-r.Base.Done():
			return
		}
		if pause != nil {
			continue
		}
		begun := time.Now()
		if r.recountAll() {
			pause = time.After(min(9*time.Since(begun), longestPause))
		}
	}
}

// reloadAll reads all aliases and applies changed settings.
func (r *Registry) reloadAll() {
	ctx, cancel := context.WithTimeout(r.Base, storeWait)
	defer cancel()
	list, err := r.Store.AllAliases(ctx)
	var secrets map[int64]relay.OpenSecrets
	if err == nil {
		secrets, err = r.Store.AllOpenSecrets(ctx)
	}
	if err != nil {
		if r.Base.Err() == nil {
			r.Log.Error("cannot read aliases again", "err", err)
			time.AfterFunc(time.Second, func() { r.ReadAgain(0) })
		}
		return
	}
	stored := make(map[int64]bool, len(list))
	for i := range list {
		stored[list[i].ID] = true
		r.changed(&list[i]).setSecrets(secrets[list[i].ID])
	}
	r.Each(func(st *Alias) {
		if !stored[st.ID] {
			// The alias may have been created after the list was read, so it is read once more.
			r.reload(st.ID)
		}
	})
}

// reload reads an alias and applies changed settings; 0 = all aliases.
func (r *Registry) reload(id int64) {
	if id == 0 {
		r.reloadAll()
		return
	}
	ctx, cancel := context.WithTimeout(r.Base, storeWait)
	defer cancel()
	a, err := r.Store.AliasByID(ctx, id)
	var secrets relay.OpenSecrets
	if err == nil {
		secrets, err = r.Store.OpenSecrets(ctx, id)
	}
	switch {
	case err == nil:
		r.changed(a).setSecrets(secrets)
	case errors.Is(err, relay.ErrNotFound):
		if st := r.remove(id); st != nil {
			st.removed()
		}
	case r.Base.Err() == nil:
		r.Log.Error("cannot read an alias again", "alias", id, "err", err)
		time.AfterFunc(time.Second, func() { r.ReadAgain(id) })
	}
}

// recountAll counts the queues that Recount was called for. It reports whether it has asked the store.
func (r *Registry) recountAll() bool {
	versions := map[int64]queueVersion{}
	for id := range r.counts.take() {
		if st := r.ByID(id); st != nil {
			versions[id] = st.Queue.version()
		}
	}
	if len(versions) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Base, storeWait)
	defer cancel()
	stats, err := r.Store.QueueStats(ctx, slices.Collect(maps.Keys(versions)))
	var again []int64
	for id, version := range versions {
		st := r.ByID(id)
		if st == nil {
			continue
		}
		if err != nil || !st.Queue.correct(version, stats[id].Queued, stats[id].QueuedBytes) {
			again = append(again, id)
		}
		if stats[id].Queued > 0 {
			st.dispatcher.Rescan()
		}
	}
	if pause := recountPause; len(again) > 0 && r.Base.Err() == nil {
		if err != nil {
			pause = time.Second
		}
		time.AfterFunc(pause, func() { r.Recount(again...) })
	}
	return true
}

const (
	storeWait    = 10 * time.Second       // longest read of the store
	recountPause = 100 * time.Millisecond // pause after a count during which the queue changed
	longestPause = 5 * time.Second
)
