// Package delivery runs exchanges: no other package sends a request into a tunnel. It knows the tunnel
// of each alias, captures the requests of callers, sends them to the local server, returns its responses,
// replays events, delivers the queue and notifies viewers.
//
// Originals, replays and queued deliveries run through the same code, so that a replay cannot differ
// from the original.
package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"relay"
	"relay/budget"
	"relay/delivery/changes"
	"relay/delivery/exchange"
	"relay/delivery/feed"
	"relay/delivery/registry"
)

// Options configure a Delivery. A limit of 0 means no limit.
type Options struct {
	Store Store
	Site  relay.Site
	Log   *slog.Logger

	MaxHead            int64         // bytes of a response head
	MaxBody            int64         // decoded bytes of a request body
	MaxResponseCapture int64         // decoded bytes of a response body that are stored
	ResponseTimeout    time.Duration // time from the end of the request to the final response head; an alias may have its own timeout
	QueueLimit         int           // queued attempts per alias
	QueueBytes         int64         // queued request bytes per alias
	AccountQueue       int           // queued attempts of all aliases of an account; an account may have its own limit

	// Capacity returns nil when a request can be stored for the alias, else the error that the caller of
	// the request gets. need is the approximate size of the request in bytes, and wait is the longest
	// time that Capacity may wait for space. It must be safe for concurrent use. nil = there is always
	// space.
	Capacity func(alias, need int64, wait time.Duration) *relay.Error
	// StoreFirst reports whether each request has to be stored before any of it is
	// forwarded, because the store may have no room for it; nil = never. It is called for
	// each request, so it must answer from memory.
	StoreFirst func() bool

	// Remote returns a tunnel of another node, given the stored record of the tunnel; nil = there are no other
	// nodes.
	Remote func(relay.TunnelRecord) relay.RemoteTunnel

	// AwaitRenewal is called before a request is given to a tunnel. It returns at once, except after
	// the process was frozen: then it waits until this node knows which tunnels were taken over. nil =
	// not called.
	AwaitRenewal func()
	// Budget bounds the bytes of answers that wait for the store or the caller; nil = no bound.
	Budget *budget.Budget

	// Registry gets the metrics of this package; nil = none.
	Registry prometheus.Registerer
}

// Bounds that no setting changes.
const (
	storeWait    = 10 * time.Second        // longest read of the store
	cutStoreWait = 2 * time.Second         // longest wait for the store to keep the records of exchanges that were cut
	cutWait      = 2500 * time.Millisecond // longest wait for exchanges to end after they were cut
	workersWait  = 2250 * time.Millisecond // longest wait for background goroutines to end; some of them store the loss of tunnels
	retryAfter   = registry.RetryAfter
)

// Stats are figures for the admin listener.
type Stats struct {
	Tunnels  int // attached tunnels, stale ones included
	Channels int // open channels, idle ones included
	Queued   int // queued attempts

	StorageFull int64 // requests refused since the start because the storage was full
}

// Delivery runs all exchanges of this process. Its methods are safe for concurrent use once Start
// has returned.
type Delivery struct {
	opt   Options
	store Store
	log   *slog.Logger

	registry      *registry.Registry
	feed          *feed.Feed
	storeDegraded atomic.Bool // see markStoreDegraded
	counters      counts

	exchanges exchange.Options

	cut     context.Context // ends when Close cuts the running exchanges
	endCut  context.CancelFunc
	base    context.Context // ends when everything must stop; from then on, no exchange waits for the store
	endBase context.CancelFunc
	workers sync.WaitGroup // background goroutines

	underWay attempts // attempts of this process that have not ended
	finds    *rate.Limiter

	mu       sync.Mutex
	stopping bool
	running  int           // captures, replays and queued deliveries in progress
	idle     chan struct{} // closed when the relay is stopping and running is 0
	stop     chan struct{} // closed when the relay is stopping
}

// New makes a Delivery; Start makes it ready.
func New(opt Options) *Delivery {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	d := &Delivery{
		opt:   opt,
		store: opt.Store,
		log:   opt.Log,
		idle:  make(chan struct{}),
		stop:  make(chan struct{}),
		finds: rate.NewLimiter(findsPerSecond, findsPerSecond),
	}
	d.base, d.endBase = context.WithCancel(context.Background())
	d.cut, d.endCut = context.WithCancel(context.Background())
	d.exchanges = exchange.Options{
		Bodies: opt.Store, Budget: opt.Budget, Log: opt.Log, Site: opt.Site, Cut: d.cut, Base: d.base,
		KeepRejected: d.keepRejected, MaxHead: opt.MaxHead, MaxBody: opt.MaxBody, MaxResponseCapture: opt.MaxResponseCapture,
	}
	d.registry = registry.New(registry.Options{
		Store: opt.Store, Log: opt.Log, Remote: opt.Remote, Background: d.background, Base: d.base,
		NewDispatcher: func(st *registry.Alias) registry.Dispatcher { return newDispatcher(d, st) },
		TunnelChanged: func(alias int64) { d.feed.Tunnel(alias) },
		Attached:      d.counters.tunnelAttached,
		ReuseEnded:    func() { d.counters.reuseEnded.Inc() },
	})
	d.feed = feed.New(feed.Options{
		Encoder: changes.Encoder{Store: opt.Store, Site: opt.Site, Alias: d.registry.Alias, Status: d.registry.Status},
		Rights:  opt.Store, Log: opt.Log,
	})
	d.counters.init(d, opt.Registry)
	return d
}

// Start reads the aliases and the counts of their queues, and starts the background work.
// ctx bounds only the reading.
func (d *Delivery) Start(ctx context.Context) error {
	if err := d.registry.Load(ctx); err != nil {
		return err
	}
	d.workers.Go(d.registry.KeepAliases)
	d.workers.Go(d.registry.KeepCounts)
	d.workers.Go(d.registry.KeepTunnels)
	d.workers.Go(func() { d.feed.Run(d.base) })
	return nil
}

// aliasWait bounds the time that Publish waits for the registry.
const aliasWait = 100 * time.Millisecond

// Publish takes changes from the store, in commit order. It never waits for viewers. After a change of
// an alias, Publish waits, for aliasWait at most, until the registry has applied the change, so that the
// change is in force when its author gets the answer.
func (d *Delivery) Publish(changes []relay.Change) {
	var waits []<-chan struct{}
	for _, c := range changes {
		switch c.Kind {
		case relay.ChangeAlias:
			waits = append(waits, d.registry.ReadAgain(c.Alias))
		case relay.ChangeAccount:
			if c.Account != 0 && c.Credential == "" {
				waits = append(waits, d.registry.ReadAccountAgain(c.Account)...)
			}
		case relay.ChangeQueue:
			d.registry.Recount(c.Alias)
		case relay.ChangeMissed:
			d.registry.Each(func(st *registry.Alias) { d.registry.Recount(st.ID) })
			d.feed.MissAll()
		case relay.ChangeTunnel:
			d.registry.ReadTunnel(c.Alias)
		}
	}
	if len(waits) > 0 {
		late := time.After(aliasWait)
		for _, w := range waits {
			select {
			case <-w:
				continue
			case <-late:
			case <-d.base.Done():
			}
			break
		}
	}
	d.feed.Put(changes...)
}

// Alias returns the alias of a lower-case label, from memory.
func (d *Delivery) Alias(label string) (*relay.Alias, bool) {
	st := d.registry.ByLabel(label)
	if st == nil {
		return nil, false
	}
	return st.Current(), true
}

// Reads of aliases that are not in memory: how many a second, and how long one read may take. The bounds keep
// requests for unknown names from overloading the store.
const (
	findsPerSecond = 20
	findWait       = 2 * time.Second
)

// FindAlias is like the method Alias, but it also finds an alias that a command or another node has just made and
// that is not in memory yet: it reads such an alias from the store, at most findsPerSecond times a second.
func (d *Delivery) FindAlias(label string) (*relay.Alias, bool) {
	if a, ok := d.Alias(label); ok || !relay.ValidLabel(label) || relay.ReservedLabel(label) || !d.finds.Allow() {
		return a, ok
	}
	ctx, cancel := context.WithTimeout(d.base, findWait)
	defer cancel()
	a, err := d.store.Alias(ctx, relay.System(), label)
	if err != nil {
		return nil, false
	}
	select {
	case <-d.registry.ReadAgain(a.ID):
		// The value that store.Alias returned above is not used: ReadAgain also reads the secrets, and
		// takes effect in order with other reads of the alias.
	case <-ctx.Done():
	}
	return d.Alias(label)
}

// WasOnline reports whether the alias of a lower-case label ever had a tunnel, and returns
// its owner. It answers from memory.
func (d *Delivery) WasOnline(label string) (owner int64, ok bool) { return d.registry.WasOnline(label) }

// Status returns state, tunnel and queue of each of the aliases, in the same order. A paused
// alias counts as offline.
func (d *Delivery) Status(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error) {
	return d.registry.Status(ctx, aliases)
}

// Attach binds t to the alias at once; it cannot fail. The tunnel that had the alias before is
// closed with the reason "taken over by a newer connection", and the exchanges that run on it
// may finish.
func (d *Delivery) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	return d.registry.Attach(a, t)
}

// NodeReachable notes whether the tunnels of another node can be used. While they cannot, requests for
// them are queued.
func (d *Delivery) NodeReachable(node string, reachable bool) {
	d.registry.NodeReachable(node, reachable)
}

// ReadTunnels reads the tunnels of all aliases again, and stores those tunnels of this node that the store
// does not have. It is needed after other nodes have declared this node dead: this node then has a new id, under
// which the store does not have its tunnels yet.
func (d *Delivery) ReadTunnels() { d.registry.ReadTunnels() }

// WakeQueue checks the queue of an alias whose tunnel is on this node. Another node asks this one to
// check after a change of the queue.
func (d *Delivery) WakeQueue(alias int64) { d.registry.WakeQueue(alias) }

// Subscribe opens the live feed for the actor: see feed.Feed.Subscribe.
func (d *Delivery) Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error) {
	return d.feed.Subscribe(ctx, who, alias, lastID)
}

// FeedID returns the id of the last item of the live feed. A subscription from this id gets every
// change that a read which begins later may have missed.
func (d *Delivery) FeedID() string { return d.feed.LastID() }

// Close starts no new exchanges and waits for the running ones until ctx ends. After that it cuts them
// and stores them as interrupted. It returns an error if it had to cut one.
func (d *Delivery) Close(ctx context.Context) error {
	d.mu.Lock()
	if d.stopping {
		d.mu.Unlock()
		<-d.base.Done()
		return nil
	}
	d.stopping = true
	close(d.stop)
	if d.running == 0 {
		close(d.idle)
	}
	d.mu.Unlock()

	var err error
	select {
	case <-d.idle:
	case <-ctx.Done():
		if n := d.countRunning(); n > 0 {
			d.endCut()
			late := time.AfterFunc(cutStoreWait, d.endBase)
			select {
			case <-d.idle:
			case <-time.After(cutWait):
			}
			late.Stop()
			err = fmt.Errorf("%d exchanges were cut when the time to stop ran out", n)
		}
	}
	d.endCut()
	d.endBase()
	d.registry.CloseIdle()
	d.feed.Close(errStopping())
	d.awaitWorkers()
	return err
}

// awaitWorkers waits for the background goroutines to end, at most for workersWait.
func (d *Delivery) awaitWorkers() {
	ended := make(chan struct{})
	go func() {
		d.workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(workersWait):
		d.log.Warn("background work did not end in time, because the store does not answer; it is left behind")
	}
}

func (d *Delivery) countRunning() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running
}

// begin counts a capture, a replay or a queued delivery as running, until end is called. It
// returns false when the relay is stopping.
func (d *Delivery) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return false
	}
	d.running++
	return true
}

func (d *Delivery) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running--; d.running == 0 && d.stopping {
		close(d.idle)
	}
}

// background runs f in a goroutine that Close waits for. It returns false, and does not run f,
// when the relay is stopping.
func (d *Delivery) background(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return false
	}
	d.workers.Go(f)
	return true
}

// attempts is a set of attempts. Its methods are safe for concurrent use.
type attempts struct {
	mu   sync.Mutex
	list map[relay.AttemptRef]bool
}

func (a *attempts) add(r relay.AttemptRef) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.list == nil {
		a.list = map[relay.AttemptRef]bool{}
	}
	a.list[r] = true
}

func (a *attempts) remove(r relay.AttemptRef) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.list, r)
}

// Running returns the attempts that this process has in progress. The events of some of these attempts are
// perhaps not stored yet.
func (d *Delivery) Running() map[relay.AttemptRef]bool {
	d.underWay.mu.Lock()
	defer d.underWay.mu.Unlock()
	return maps.Clone(d.underWay.list)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Stats counts tunnels, channels and queued attempts.
func (d *Delivery) Stats() Stats {
	tunnels, queued := d.registry.Count()
	return Stats{
		Channels: d.registry.Channels(), StorageFull: d.counters.storageFull.Load(),
		Tunnels: tunnels[relay.TunnelOnline] + tunnels[relay.TunnelStale], Queued: queued,
	}
}

func errStopping() *relay.Error {
	return &relay.Error{Code: relay.CodeStopping, Detail: "the relay is stopping; try again in a moment", RetryAfter: retryAfter}
}
