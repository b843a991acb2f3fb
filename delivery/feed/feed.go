// Package feed tells viewers live what happened, after it was committed: the SSE stream, the
// dashboard, the log of relay up.
package feed

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"relay"
	"relay/record"
)

// Bounds of the feed.
const (
	roundPause   = 50 * time.Millisecond  // between rounds, and between two results of Next
	resyncPause  = 500 * time.Millisecond // between two resync items: for each the viewer reads all its data
	ringItems    = 1024                   // items kept for Last-Event-ID
	pendingItems = 200                    // items that may wait for a viewer
	// An item of an attempt holds the response heads, up to 128 KiB and as much of interim
	// ones, so items are bounded in bytes too.
	ringBytes      = 8 << 20          // of the items kept
	pendingBytes   = 1 << 20          // of the items that wait for one viewer, but for one larger item
	encoders       = 4                // aliases whose items are encoded at the same time
	accountViewers = 256              // viewers of one account
	readTimeout    = 10 * time.Second // for what one round reads
	roundChanges   = 500              // changes that one round reads, of one alias at most pendingItems
	runningEvents  = 1024             // events under way that are kept in memory
	missedAliases  = 10_000           // aliases of which it is known that items were left out
)

// Names of feed items.
const (
	itemEvent   = "event"
	itemAttempt = "attempt"
	itemTunnel  = "tunnel"
	itemResync  = "resync"
)

// Store is what the feed reads. Its methods are safe for concurrent use.
type Store interface {
	// Summaries reads rows of lists; events that are gone are left out.
	Summaries(ctx context.Context, ids []relay.ID) ([]relay.Event, error)
	// AttemptHeads reads attempts without their response bodies and positions; those that
	// are gone are left out.
	AttemptHeads(ctx context.Context, refs []relay.AttemptRef) (map[relay.AttemptRef]*relay.Attempt, error)
	// QueuePositions returns the positions, from 1 on, of attempts in the queue of their
	// alias. Those that do not wait are left out.
	QueuePositions(ctx context.Context, alias int64, refs []relay.AttemptRef) (map[relay.AttemptRef]int, error)
	// Aliases lists those that an actor may see.
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	// AccountsOf returns the accounts that may see each of some aliases; those that are gone
	// are left out.
	AccountsOf(ctx context.Context, aliases []int64) (map[int64][]int64, error)
	// StillValid returns nil while the credential of an actor is valid.
	StillValid(ctx context.Context, who relay.Actor) error
}

// Options are what a Feed is made of.
type Options struct {
	Store Store
	Site  relay.Site
	Log   *slog.Logger
	// Alias returns an alias, from memory; nil when it is gone.
	Alias func(id int64) *relay.Alias
	// Status returns the status of aliases, in their order.
	Status func(ctx context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error)
}

// Feed tells viewers what happened. Each change is read and encoded once, and only while somebody
// may see it. One goroutine reads what viewers may see; the items of each alias are encoded beside
// it, one after the other, so that an alias with large ones delays no other. The methods are safe
// for concurrent use.
type Feed struct {
	Options
	boot string // starts every id, so that those of another run are known as foreign

	mu      sync.Mutex
	changes []change
	count   map[int64]int                      // alias -> how many of changes are of it
	left    map[int64]bool                     // aliases of which changes were left out since the last round
	busy    map[int64]bool                     // aliases whose items are encoded now
	any     bool                               // the rights of all viewers are to be read again
	running *lru.Cache[relay.ID, *relay.Event] // new events whose first attempt is under way
	wake    chan struct{}
	places  chan struct{} // one for each alias that is encoded
	viewers map[*viewer]bool
	closed  error  // what viewers get since Close; nil = open
	rights  uint64 // raised by each change after which somebody may have lost or gained rights
	known   uint64 // what rights was when those of the viewers were read last

	seq    uint64
	ring   []entry
	size   int              // bytes of the items in ring
	missed map[int64]uint64 // alias -> seq at which an item of it was left out
	early  uint64           // items with a lower seq are forgotten
}

// change is a change with the snapshot that the store passed along; nil = it has to be read.
type change struct {
	relay.Change
	event   *relay.Event
	attempt *relay.Attempt
	read    bool // attempt was read; nil = it is gone
}

func (c *change) ref() relay.AttemptRef { return relay.AttemptRef{Event: c.Event, N: c.N} }

type entry struct {
	seq  uint64
	item relay.FeedItem
}

// New makes a feed; Run makes it tell.
func New(o Options) *Feed {
	running, err := lru.New[relay.ID, *relay.Event](runningEvents)
	if err != nil {
		panic("feed: " + err.Error()) // only a size below 1 fails
	}
	return &Feed{
		Options: o,
		boot:    strconv.FormatInt(time.Now().UnixNano(), 36),
		wake:    make(chan struct{}, 1),
		viewers: map[*viewer]bool{},
		count:   map[int64]int{},
		left:    map[int64]bool{},
		busy:    map[int64]bool{},
		places:  make(chan struct{}, encoders),
		missed:  map[int64]uint64{},
		running: running,
	}
}

// Tunnel notes that the tunnel or the queue of an alias has changed.
func (f *Feed) Tunnel(alias int64) {
	f.Put(relay.Change{Kind: relay.ChangeQueue, Alias: alias})
}

// Put takes changes in commit order. It never waits for viewers.
func (f *Feed) Put(changes ...relay.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		return
	}
	for _, c := range changes {
		if c.Kind == relay.ChangeAlias || c.Kind == relay.ChangeAccount {
			f.rights++
		}
		switch {
		case c.Kind == relay.ChangeTunnel, c.Kind == relay.ChangeMissed: // told by Tunnel and MissAll
			continue
		case c.Kind == relay.ChangeAccount, c.Kind == relay.ChangeAlias && len(f.viewers) > 0:
			f.putRights(c)
			continue
		case f.left[c.Alias]:
			continue
		// While rights are to be read, it is not known who sees the alias.
		case !f.watched(c.Alias) && (len(f.viewers) == 0 || f.rights == f.known):
			f.noteMissed(c.Alias)
			continue
		case len(f.changes) >= roundChanges, f.count[c.Alias] >= pendingItems:
			f.left[c.Alias] = true
			continue
		}
		f.count[c.Alias]++
		f.changes = append(f.changes, f.withSnapshot(c))
	}
	f.wakeRun()
}

// putRights takes a change of rights. Beyond roundChanges it stands for the rights of all viewers,
// and those of its alias read their data again. The caller holds mu.
func (f *Feed) putRights(c relay.Change) {
	switch {
	case len(f.changes) < roundChanges:
		f.count[c.Alias]++
		f.changes = append(f.changes, change{Change: c})
		return
	case c.Alias != 0:
		f.left[c.Alias] = true
	}
	if !f.any {
		f.any = true
		f.changes = append(f.changes, change{Change: relay.Change{Kind: relay.ChangeAlias}}, change{Change: relay.Change{Kind: relay.ChangeAccount}})
	}
}

// wakeRun makes Run begin a round if there is something to tell. The caller holds mu.
func (f *Feed) wakeRun() {
	if len(f.changes) == 0 && len(f.left) == 0 {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// withSnapshot returns a change with its snapshot, which holds no memory of the store. The
// event of an only attempt that has ended is taken from running. The caller holds mu.
func (f *Feed) withSnapshot(c relay.Change) change {
	out := change{Change: c}
	if c.Kind != relay.ChangeEvent && c.Kind != relay.ChangeAttempt {
		return out
	}
	if c.Snapshot != nil {
		out.event, out.attempt = c.Snapshot()
	}
	begun, _ := f.running.Get(c.Event)
	f.running.Remove(c.Event)
	switch {
	case out.event != nil && out.event.State == relay.StateDelivering:
		f.running.Add(c.Event, out.event)
	case out.event == nil && c.Ended != nil && begun != nil && begun.AttemptCount == c.N:
		out.event = c.Ended(begun)
	}
	out.Snapshot, out.Ended = nil, nil
	return out
}

// noteMissed notes that an item of the alias was left out, for viewers that come back. When too
// many aliases are noted, all earlier ids become unknown instead. The caller holds mu.
func (f *Feed) noteMissed(alias int64) {
	if _, known := f.missed[alias]; !known && len(f.missed) >= missedAliases {
		clear(f.missed)
		f.early = f.seq
	}
	f.seq++
	f.missed[alias] = f.seq
}

// miss notes that an item of the alias was left out, and makes its viewers read their data
// again. The caller holds mu.
func (f *Feed) miss(alias int64) {
	f.noteMissed(alias)
	for v := range f.viewers {
		if v.sees(alias) {
			v.resync(f.id(f.seq))
		}
	}
}

// MissAll makes all viewers read their data again, because it is not known what changed.
func (f *Feed) MissAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	f.early = f.seq
	f.running.Purge()
	for v := range f.viewers {
		v.resync(f.id(f.seq))
	}
}

// watched reports whether any viewer may see the alias. The caller holds mu.
func (f *Feed) watched(alias int64) bool {
	for v := range f.viewers {
		if v.sees(alias) {
			return true
		}
	}
	return false
}

// Run makes items of changes, a round at a time, until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var encoding sync.WaitGroup
	defer encoding.Wait()
	for {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		for _, tell := range f.round(ctx) {
			encoding.Go(func() { tell(ctx) })
		}
		pause.Reset(roundPause)
	}
}

// round takes the changes that wait, and applies those of rights. It returns what encodes the items
// of each alias and passes them on. What is of an alias whose items are still being encoded waits
// for a later round, so that the items of an alias keep their order.
func (f *Feed) round(ctx context.Context) (tell []func(context.Context)) {
	f.mu.Lock()
	changes, left, rights := f.changes, f.left, f.rights
	f.changes, f.left, f.any = nil, map[int64]bool{}, false
	clear(f.count)
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	told, ok := f.access(ctx, changes)
	if ok {
		f.mu.Lock()
		f.known = rights
		f.mu.Unlock()
	}
	told, left = f.putBack(told, left)
	told = leaveOut(coalesce(told), left)
	events, err := f.events(ctx, told)
	byAlias := map[int64][]change{}
	for _, c := range told {
		if err != nil {
			left[c.Alias] = true
		} else {
			byAlias[c.Alias] = append(byAlias[c.Alias], c)
		}
	}
	f.mu.Lock()
	for alias := range left {
		f.miss(alias)
		delete(byAlias, alias)
	}
	for alias := range byAlias {
		f.busy[alias] = true
	}
	f.mu.Unlock()
	for alias, changes := range byAlias {
		tell = append(tell, func(ctx context.Context) { f.tell(ctx, alias, changes, events) })
	}
	return tell
}

// putBack puts back what is of an alias whose items are being encoded, and returns the rest.
func (f *Feed) putBack(told []change, left map[int64]bool) ([]change, map[int64]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var back, now []change
	for _, c := range told {
		if !f.busy[c.Alias] {
			now = append(now, c)
			continue
		}
		if c.Kind == relay.ChangeAlias {
			c.Kind = relay.ChangeQueue // its rights have been applied
		}
		back = append(back, c)
		f.count[c.Alias]++
	}
	f.changes = append(back, f.changes...)
	for alias := range left {
		if f.busy[alias] {
			f.left[alias] = true
			delete(left, alias)
		}
	}
	return now, left
}

// tell encodes the items of one alias and passes them on.
func (f *Feed) tell(ctx context.Context, alias int64, changes []change, events map[relay.ID]*relay.Event) {
	f.places <- struct{}{}
	defer func() { <-f.places }()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	items, all := f.items(ctx, changes, events)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deliver(items)
	if !all {
		f.miss(alias)
	}
	delete(f.busy, alias)
	f.wakeRun()
}

// access ends the viewers that have lost their rights, and returns the changes that the others
// receive. ok is false when the rights of some could not be read.
func (f *Feed) access(ctx context.Context, changes []change) (told []change, ok bool) {
	var aliases []int64
	accounts := map[int64]bool{}
	told = changes[:0]
	for _, c := range changes {
		switch c.Kind {
		case relay.ChangeAccount:
			accounts[c.Account] = true
			continue
		case relay.ChangeAlias:
			aliases = append(aliases, c.Alias)
		}
		told = append(told, c)
	}
	if len(aliases) == 0 && len(accounts) == 0 {
		return told, true
	}
	return told, f.learnAgain(ctx, aliases, accounts)
}

// learnAgain reads anew what viewers may see, and ends those that have lost their rights: of the
// accounts everything, of all others whether they see the aliases, in one read. It returns
// false when the rights of some could not be read.
func (f *Feed) learnAgain(ctx context.Context, aliases []int64, accounts map[int64]bool) (ok bool) {
	f.mu.Lock()
	viewers := slices.Collect(maps.Keys(f.viewers))
	f.mu.Unlock()
	anyAlias := slices.Contains(aliases, 0)
	var seenBy map[int64][]int64
	var unread error
	if len(aliases) > 0 && !anyAlias && len(viewers) > 0 {
		seenBy, unread = f.Store.AccountsOf(ctx, aliases)
	}
	var again []relay.Change // for the rights that could not be read
	for _, v := range viewers {
		err, before := unread, v.may                        // only this goroutine changes it once the viewer has subscribed
		concerned := accounts[v.who.Account] || accounts[0] // 0 = any account
		switch {
		case concerned:
			if err = f.Store.StillValid(ctx, v.who); err == nil {
				err = v.learn(ctx)
			}
		case len(aliases) == 0:
			continue
		case anyAlias, v.unsure:
			err = v.learn(ctx)
		case err == nil:
			err = v.apply(aliases, seenBy)
		}
		f.catchUp(v, before, err)
		switch {
		case errors.Is(err, relay.ErrNotFound):
			v.cut(relay.ErrNotFound)
		case err != nil && concerned:
			again = []relay.Change{{Kind: relay.ChangeAlias}, {Kind: relay.ChangeAccount}}
		case err != nil && again == nil:
			again = []relay.Change{{Kind: relay.ChangeAlias}}
		}
	}
	if again != nil { // retry until the rights are known; nobody is cut off meanwhile
		time.AfterFunc(time.Second, func() { f.Put(again...) })
	}
	return again == nil
}

// catchUp is called when the rights of a viewer were read anew; err says that they were not.
// The viewer reads its data again if items of an alias that it has gained may have been left
// out, as when another node told of an event before the alias, or when the rights could not be
// read before.
func (f *Feed) catchUp(v *viewer, before map[int64]bool, err error) {
	if err != nil {
		v.unsure = true
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	missed := v.unsure
	for alias := range v.may {
		if _, some := f.missed[alias]; some && !before[alias] && v.sees(alias) {
			missed = true
		}
	}
	v.unsure = false
	if missed {
		v.resync(f.id(f.seq))
	}
}

// deliver numbers the items and passes each one to the viewers that may see it. The caller holds mu.
func (f *Feed) deliver(items []relay.FeedItem) {
	for i := range items {
		f.seq++
		record.CompleteItem(&items[i], f.id(f.seq))
		f.ring = append(f.ring, entry{f.seq, items[i]})
		f.size += len(items[i].Data)
	}
	over := 0
	for ; len(f.ring)-over > ringItems || f.size > ringBytes; over++ {
		f.early = f.ring[over].seq
		f.size -= len(f.ring[over].item.Data)
	}
	f.ring = slices.Delete(f.ring, 0, over)
	for v := range f.viewers {
		v.give(items)
	}
}

func (f *Feed) id(seq uint64) string { return f.boot + "-" + strconv.FormatUint(seq, 10) }

// LastID returns the id of the last item.
func (f *Feed) LastID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id(f.seq)
}

// since returns the items after the last one that a viewer received. ok is false when the
// viewer has to read its data again.
func (f *Feed) since(lastID string, v *viewer) (items []relay.FeedItem, ok bool) {
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
	return items, len(items) <= pendingItems
}

// Close ends all viewers with the error why, which is what Subscribe returns from then on.
func (f *Feed) Close(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = why
	for v := range f.viewers {
		v.cut(why)
	}
	clear(f.viewers)
}

// Viewers returns the number of viewers.
func (f *Feed) Viewers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.viewers)
}

// Bytes returns the bytes of the items that are kept for viewers that come back.
func (f *Feed) Bytes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}
