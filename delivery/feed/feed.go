// Package feed sends committed changes to live viewers: the SSE stream, the dashboard, the log of relay
// up. A viewer subscribes, reads its data, and follows the changes. If it may have missed changes, it
// gets a resync item and reads its data again.
package feed

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"relay"
	"relay/delivery/changes"
	"relay/record"
	"relay/turns"
)

// Bounds of the feed.
const (
	roundPause     = 50 * time.Millisecond  // time between two reads of an alias' changes, and between two results of Next
	resyncPause    = 500 * time.Millisecond // time between two resync items, because a viewer reads all its data for each
	pendingItems   = 200                    // largest number of items that wait for a viewer, and of changes that wait for an alias
	pendingBytes   = 1 << 20                // largest size of the items that wait for one viewer; a single larger item is allowed
	waitingChanges = 5_000                  // largest number of waiting changes of all aliases
	roundsAtOnce   = 8                      // aliases that are read and encoded at the same time
	accountRounds  = roundsAtOnce / 2       // the same, for the aliases of one owner
	unseenAliases  = 10_000                 // largest number of aliases that the feed remembers because no viewer saw their changes
	accountViewers = 256                    // largest number of viewers of one account
	readTimeout    = 10 * time.Second       // time limit of one read
	retryPause     = time.Second            // pause before rights are read again after an error
)

// Rights is the part of the store that knows which aliases an account may see. Its methods are safe for
// concurrent use.
type Rights interface {
	// Aliases lists the aliases that an actor may see.
	Aliases(ctx context.Context, who relay.Actor) ([]relay.Alias, error)
	// AccountsOf returns, for each of the aliases, the accounts that may see it; removed aliases are
	// left out.
	AccountsOf(ctx context.Context, aliases []int64) (map[int64][]int64, error)
	// StillValid returns nil while the credential of an actor is valid.
	StillValid(ctx context.Context, who relay.Actor) error
}

// Options configure a Feed.
type Options struct {
	Encoder changes.Encoder
	Rights  Rights
	Log     *slog.Logger
}

// Feed sends changes to viewers. Each change is read and encoded once, and only if a viewer may see it, in a
// goroutine of its alias, so that an alias with large items delays no other alias. Each viewer reads its own
// rights. The methods are safe for concurrent use.
type Feed struct {
	Options
	boot string // beginning of every id, which differs between runs of the process

	mu      sync.Mutex
	seq     uint64 // number of the last item, or of the last change that no viewer saw
	viewers map[*viewer]bool
	waiting map[int64]*queue // changes of each alias that were not sent yet
	count   int              // number of changes in waiting
	unseen  map[int64]bool   // aliases with changes that no viewer saw
	tellers sync.WaitGroup
	turns   *turns.Turns    // lets the owners of changed aliases take turns: an alias is read and encoded when its owner has one
	ctx     context.Context // the context of Run; nil = Run was not called
	closed  error           // the error for viewers after Close; nil = open
}

// queue holds the waiting changes of one alias.
type queue struct {
	changes []changes.Change
	missed  bool // changes were left out, so the viewers of the alias get a resync item
	rights  bool // the rights to see the alias may have changed
}

// New returns a feed. It sends nothing until Run is called.
func New(o Options) *Feed {
	boot := strconv.FormatInt(time.Now().UnixNano(), 36)
	return &Feed{
		Options: o, boot: boot, viewers: map[*viewer]bool{}, waiting: map[int64]*queue{}, unseen: map[int64]bool{},
		turns: turns.New(roundsAtOnce, accountRounds),
	}
}

// Run sends changes to viewers until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	f.mu.Lock()
	f.ctx = ctx
	for alias := range f.waiting {
		f.start(alias)
	}
	f.mu.Unlock()
	<-ctx.Done()
	// A call that holds mu may not have seen the end of ctx and may still start a goroutine. So Run waits for mu
	// before it waits for the goroutines.
	f.mu.Lock()
	//lint:ignore SA2001 nothing is to be done while it is held
	f.mu.Unlock()
	f.tellers.Wait()
}

// Tunnel notes that the tunnel or the queue of an alias has changed.
func (f *Feed) Tunnel(alias int64) {
	f.Put(relay.Change{Kind: relay.ChangeQueue, Alias: alias})
}

// Put takes changes in the order in which they were committed. It never waits for viewers.
func (f *Feed) Put(committed ...relay.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range committed {
		switch {
		case f.closed != nil:
		case c.Kind == relay.ChangeAccount, c.Kind == relay.ChangeAlias && c.Alias == 0:
			for v := range f.viewers {
				if c.Account == 0 || c.Account == v.who.Account {
					v.outdate()
				}
			}
		case c.Kind == relay.ChangeEvent, c.Kind == relay.ChangeAttempt, c.Kind == relay.ChangeQueue, c.Kind == relay.ChangeAlias:
			f.put(c)
		}
	}
}

// put queues a change if a viewer sees its alias. The caller holds mu.
func (f *Feed) put(c relay.Change) {
	q, rights := f.waiting[c.Alias], c.Kind == relay.ChangeAlias
	if q == nil {
		if len(f.viewers) == 0 || !rights && !f.watched(c.Alias) {
			if f.seq++; len(f.unseen) >= unseenAliases {
				clear(f.unseen)
			}
			f.unseen[c.Alias] = true
			return
		}
		q = &queue{}
		f.waiting[c.Alias] = q
		f.start(c.Alias)
	}
	if q.rights = q.rights || rights; rights {
		// The item of a ChangeQueue shows the alias as well, so one kind of item is enough.
		c.Kind = relay.ChangeQueue
	}
	if q.missed = q.missed || len(q.changes) >= pendingItems || f.count >= waitingChanges; q.missed {
		return
	}
	q.changes = append(q.changes, changes.Of(c))
	f.count++
}

// watched reports whether at least one viewer may see the alias and is not about to read all its data
// again. The caller holds mu.
func (f *Feed) watched(alias int64) bool {
	for v := range f.viewers {
		if v.sees(alias) && !v.behind {
			return true
		}
	}
	return false
}

// start starts a goroutine that sends the changes of an alias, in rounds, until none are left. The
// caller holds mu.
func (f *Feed) start(alias int64) {
	ctx := f.ctx
	if ctx == nil || ctx.Err() != nil {
		return
	}
	f.tellers.Go(func() {
		var owner int64
		if a := f.Encoder.Alias(alias); a != nil {
			owner = a.Owner
		}
		for f.tell(ctx, alias, owner) {
			select {
			case <-time.After(roundPause):
			case <-ctx.Done():
			}
		}
	})
}

// tell sends the waiting changes of an alias, once its owner has a turn. It returns false if there were no
// changes, or ctx has ended.
func (f *Feed) tell(ctx context.Context, alias, owner int64) bool {
	done, err := f.turns.Wait(ctx, owner)
	if err != nil {
		return false
	}
	defer done()
	if ctx.Err() != nil {
		return false
	}
	q := f.take(alias)
	if q != nil {
		f.round(ctx, alias, q)
	}
	return q != nil
}

// take takes the waiting changes of an alias, and leaves an empty queue for new ones. If there are
// none, it removes the queue and returns nil.
func (f *Feed) take(alias int64) *queue {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.waiting[alias]
	if len(q.changes) == 0 && !q.missed {
		delete(f.waiting, alias)
		return nil
	}
	f.count -= len(q.changes)
	f.waiting[alias] = &queue{}
	return q
}

// round sends changes of one alias. If changes cannot be read, or are too many, the viewers get a
// resync item instead.
func (f *Feed) round(ctx context.Context, alias int64, q *queue) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if q.rights {
		f.checkRights(ctx, alias)
	}
	told := changes.Coalesce(q.changes)
	missed := q.missed || len(told) > pendingItems
	for some := range slices.Chunk(told, changes.AtOnce) {
		if missed {
			break
		}
		items, err := f.Encoder.Items(ctx, alias, some)
		if err != nil {
			f.Log.Warn("cannot read changes for the live feed", "err", err)
		}
		missed = !f.deliver(alias, items) || err != nil
	}
	if missed {
		f.miss(func(v *viewer) bool { return v.sees(alias) })
	}
}

// checkRights makes viewers read their rights again if these do not agree with the accounts that may
// see an alias.
func (f *Feed) checkRights(ctx context.Context, alias int64) {
	seenBy, err := f.Rights.AccountsOf(ctx, []int64{alias})
	f.mu.Lock()
	defer f.mu.Unlock()
	for v := range f.viewers {
		if err != nil || v.changed != v.learnt || v.may[alias] != slices.Contains(seenBy[alias], v.who.Account) {
			v.outdate()
		}
	}
}

// deliver numbers items of one alias and passes them to the viewers that see it. It returns false when
// no viewer took them.
func (f *Feed) deliver(alias int64, items []relay.FeedItem) (taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range items {
		f.seq++
		record.CompleteItem(&items[i], f.id())
	}
	for v := range f.viewers {
		taken = v.sees(alias) && v.give(items) || taken
	}
	return taken
}

// miss calls the function who for each viewer, and makes each one for which it returns true read its data
// again.
func (f *Feed) miss(who func(v *viewer) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	for v := range f.viewers {
		if who(v) {
			v.fallBehind()
		}
	}
}

// MissAll makes all viewers read their data again, because an unknown part of the store has changed.
func (f *Feed) MissAll() { f.miss(func(*viewer) bool { return true }) }

// id returns the id of the last item. The caller holds mu.
func (f *Feed) id() string { return f.boot + "-" + strconv.FormatUint(f.seq, 10) }

// LastID returns the id of the last item.
func (f *Feed) LastID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id()
}

// Close ends all viewers with the error why. Subscribe then returns the same error.
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

// Bytes returns the total size of the items that wait for viewers; an item counts once for each of its
// viewers.
func (f *Feed) Bytes() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for v := range f.viewers {
		n += v.size
	}
	return n
}
