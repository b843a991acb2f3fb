package delivery

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"relay"
)

// Bounds of the feed.
const (
	feedPause   = 50 * time.Millisecond // between rounds, and between two results of Next
	feedRing    = 1024                  // items kept for Last-Event-ID
	feedPending = 200                   // items that may wait for a viewer
	// An item of an attempt holds the response heads, up to 128 KiB and as much of interim
	// ones, so items are bounded in bytes too.
	feedRingBytes    = 8 << 20 // of the items kept
	feedPendingBytes = 1 << 20 // of the items that wait for one viewer, but for one larger item
	feedRoundBytes   = 4 << 20 // of the items that one round makes, and one item more
	feedViewers      = 256     // viewers of one account
	feedRound        = 500     // changes that one round reads
	feedRunning      = 1024    // events under way that are kept in memory
	feedMissed       = 10_000  // aliases of which it is known that items were left out
	aliasWait        = 100 * time.Millisecond
)

// Names of feed items.
const (
	itemEvent   = "event"
	itemAttempt = "attempt"
	itemTunnel  = "tunnel"
	itemResync  = "resync"
)

// feed tells viewers what happened, after it was committed. One goroutine reads and
// encodes each change once, and only while somebody may see it.
type feed struct {
	d    *Delivery
	boot string // starts every id, so that those of another run are known as foreign

	mu      sync.Mutex
	changes []feedChange
	lost    map[int64]bool                     // aliases of which changes were dropped unread
	running *lru.Cache[relay.ID, *relay.Event] // new events whose first attempt is under way
	wake    chan struct{}
	viewers map[*viewer]bool
	closed  bool

	seq    uint64
	ring   []feedEntry
	size   int              // bytes of the items in ring
	missed map[int64]uint64 // alias -> seq at which an item of it was left out
	early  uint64           // items with a lower seq are forgotten
}

// feedChange is a change with the snapshot that the store passed along; nil = it has to be read.
type feedChange struct {
	relay.Change
	event   *relay.Event
	attempt *relay.Attempt
}

type feedEntry struct {
	seq  uint64
	item relay.FeedItem
}

func newFeed(d *Delivery) *feed {
	running, err := lru.New[relay.ID, *relay.Event](feedRunning)
	if err != nil {
		panic("delivery: " + err.Error()) // only a size below 1 fails
	}
	return &feed{
		d:       d,
		boot:    strconv.FormatInt(time.Now().UnixNano(), 36),
		wake:    make(chan struct{}, 1),
		viewers: map[*viewer]bool{},
		missed:  map[int64]uint64{},
		lost:    map[int64]bool{},
		running: running,
	}
}

// Publish takes changes from the store, in commit order. It never waits for viewers.
// After a change of an alias it waits up to aliasWait until the registry has applied it,
// so that the change is in force when its author gets the answer.
func (d *Delivery) Publish(changes []relay.Change) {
	var waits []<-chan struct{}
	for _, c := range changes {
		switch c.Kind {
		case relay.ChangeAlias:
			waits = append(waits, d.registry.readAgain(c.Alias))
		case relay.ChangeQueue:
			d.registry.recount(c.Alias)
		case relay.ChangeMissed:
			d.registry.each(func(st *aliasState) { d.registry.recount(st.id) })
			d.feed.missAll()
		case relay.ChangeTunnel:
			d.tunnels.readLater(c.Alias)
		}
	}
	if len(waits) > 0 {
		late := time.NewTimer(aliasWait)
		defer late.Stop()
		for _, w := range waits {
			select {
			case <-w:
				continue
			case <-late.C:
			case <-d.base.Done():
			}
			break
		}
	}
	d.feed.put(changes...)
}

// tunnel notes that the tunnel or the queue of an alias has changed.
func (f *feed) tunnel(alias int64) {
	f.put(relay.Change{Kind: relay.ChangeQueue, Alias: alias})
}

func (f *feed) put(changes ...relay.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	for _, c := range changes {
		switch {
		case c.Kind == relay.ChangeTunnel, c.Kind == relay.ChangeMissed: // applyTunnel and missAll tell viewers
			continue
		case c.Kind == relay.ChangeAccount:
		case c.Kind == relay.ChangeAlias && len(f.viewers) > 0:
		case !f.watched(c.Alias):
			f.miss(c.Alias)
			continue
		case len(f.changes) >= feedRound:
			f.lost[c.Alias] = true
			continue
		}
		f.changes = append(f.changes, f.withSnapshot(c))
	}
	if len(f.changes)+len(f.lost) > 0 {
		f.nudge()
	}
}

// withSnapshot returns a change with its snapshot, which holds no memory of the store. The
// event of an only attempt that has ended is taken from running. The caller holds mu.
func (f *feed) withSnapshot(c relay.Change) feedChange {
	out := feedChange{Change: c}
	if c.Kind != relay.ChangeEvent && c.Kind != relay.ChangeAttempt {
		return out
	}
	if c.Snapshot != nil {
		out.event, out.attempt = c.Snapshot()
		out.Snapshot = nil
	}
	begun, _ := f.running.Get(c.Event)
	f.running.Remove(c.Event)
	switch {
	case out.event != nil && out.event.State == relay.StateDelivering:
		f.running.Add(c.Event, out.event)
	case out.event == nil && out.attempt != nil && begun != nil && begun.AttemptCount == c.N:
		out.event = afterEnd(begun, out.attempt)
	}
	return out
}

// afterEnd returns an event as the store writes it when its only attempt has ended.
func afterEnd(begun *relay.Event, a *relay.Attempt) *relay.Event {
	e := *begun
	e.State, e.Error, e.Status, e.HasLatency = a.State, a.Error, a.Status, a.HasTiming
	if a.HasTiming {
		e.Latency = a.Timing.Latency()
	}
	if e.Blocker == "" && a.ResponseState == relay.ResponseUpgraded {
		e.Blocker = relay.BlockedUpgraded
	}
	return &e
}

// miss notes that an item of the alias was left out. When too many aliases are noted,
// all earlier ids become unknown instead. The caller holds mu.
func (f *feed) miss(alias int64) {
	if _, known := f.missed[alias]; !known && len(f.missed) >= feedMissed {
		clear(f.missed)
		f.early = f.seq
	}
	f.seq++
	f.missed[alias] = f.seq
}

// missAll makes all viewers read their data again, because it is not known what changed.
func (f *feed) missAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	f.early = f.seq
	f.running.Purge()
	for v := range f.viewers {
		v.resync(f.id(f.seq))
	}
}

func (f *feed) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// watched reports whether any viewer may see the alias. The caller holds mu.
func (f *feed) watched(alias int64) bool {
	for v := range f.viewers {
		if v.sees(alias) {
			return true
		}
	}
	return false
}

// run makes items of changes, a round at a time.
func (f *feed) run() {
	defer f.d.workers.Done()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-f.wake:
		case <-f.d.base.Done():
			return
		}
		select {
		case <-pause.C:
		case <-f.d.base.Done():
			return
		}
		f.round()
		pause.Reset(feedPause)
	}
}

func (f *feed) round() {
	f.mu.Lock()
	changes, lost := f.changes, f.lost
	f.changes, f.lost = nil, map[int64]bool{}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(f.d.base, storeWait)
	defer cancel()
	changes = f.access(ctx, changes)
	items, left := f.items(ctx, changes)
	for _, c := range left {
		lost[c.Alias] = true
	}
	f.deliver(items, lost)
}

// access ends the viewers that have lost their rights, and returns the changes that the others
// receive.
func (f *feed) access(ctx context.Context, changes []feedChange) []feedChange {
	aliases := false
	accounts := map[int64]bool{}
	told := changes[:0]
	for _, c := range changes {
		switch c.Kind {
		case relay.ChangeAccount:
			accounts[c.Account] = true
			continue
		case relay.ChangeAlias:
			aliases = true
		}
		told = append(told, c)
	}
	if !aliases && len(accounts) == 0 {
		return told
	}
	f.mu.Lock()
	viewers := make([]*viewer, 0, len(f.viewers))
	for v := range f.viewers {
		viewers = append(viewers, v)
	}
	f.mu.Unlock()
	learned := true
	for _, v := range viewers {
		if accounts[v.who.Account] && f.d.store.StillValid(ctx, v.who) != nil {
			v.cut(relay.ErrNotFound)
		} else if aliases || accounts[v.who.Account] {
			learned = v.refresh(ctx) && learned
		}
	}
	if !learned && f.d.base.Err() == nil { // retry until the rights are known
		time.AfterFunc(time.Second, func() { f.put(relay.Change{Kind: relay.ChangeAlias}) })
	}
	return told
}

// deliver numbers the items and passes each one to the viewers that may see it.
func (f *feed) deliver(items []relay.FeedItem, lost map[int64]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range items {
		f.seq++
		items[i].ID = f.id(f.seq)
		f.ring = append(f.ring, feedEntry{f.seq, items[i]})
		f.size += len(items[i].Data)
	}
	for alias := range lost {
		f.miss(alias)
	}
	over := 0
	for ; len(f.ring)-over > feedRing || f.size > feedRingBytes; over++ {
		f.early = f.ring[over].seq
		f.size -= len(f.ring[over].item.Data)
	}
	f.ring = slices.Delete(f.ring, 0, over)
	for v := range f.viewers {
		v.give(items)
		for alias := range lost {
			if v.sees(alias) {
				v.resync(f.id(f.seq))
				break
			}
		}
	}
}

func (f *feed) id(seq uint64) string { return f.boot + "-" + strconv.FormatUint(seq, 10) }

// since returns the items after the last one that a viewer received. ok is false when the
// viewer has to read its data again.
func (f *feed) since(lastID string, v *viewer) (items []relay.FeedItem, ok bool) {
	boot, num, _ := strings.Cut(lastID, "-")
	seq, err := strconv.ParseUint(num, 10, 64)
	if boot != f.boot || err != nil || seq < f.early || seq > f.seq {
		return nil, false
	}
	for alias, at := range f.missed {
		if at > seq && v.sees(alias) {
			return nil, false
		}
	}
	for _, e := range f.ring {
		if e.seq > seq && v.sees(e.item.Alias) {
			items = append(items, e.item)
		}
	}
	return items, len(items) <= feedPending
}

// close ends all viewers.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for v := range f.viewers {
		v.cut(errStopping())
	}
	clear(f.viewers)
}
