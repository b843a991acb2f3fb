package feed

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"relay"
	"relay/record"
)

// viewer is one subscriber of the live feed. It implements relay.Subscription.
type viewer struct {
	f     *Feed
	who   relay.Actor
	alias int64  // 0 = all that the actor may see
	start string // see Start

	unsure bool // its rights could not be read; only the goroutine of Run uses it

	mu      sync.Mutex
	all     bool
	may     map[int64]bool
	pending []relay.FeedItem
	size    int           // bytes of the items in pending
	ready   chan struct{} // has an element while items wait
	ended   error
	last    time.Time // of the last result of Next
	again   bool      // that was a resync item
}

// Subscribe opens the live feed for the actor; alias 0 means all aliases that the actor may
// see. lastID is the id of the last item that the viewer received, or "". Errors: ErrNotFound
// for an alias that the actor may not see, rate-limited when the account has too many viewers.
func (f *Feed) Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error) {
	v := &viewer{f: f, who: who, alias: alias, ready: make(chan struct{}, 1)}
	f.mu.Lock()
	rights := f.rights
	f.mu.Unlock()
	if err := f.Store.StillValid(ctx, who); err != nil { // its end may have been told before
		return nil, err
	}
	if err := v.learn(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		return nil, f.closed
	}
	others := 0
	for o := range f.viewers {
		if who.Kind != relay.ActorSystem && o.who.Kind != relay.ActorSystem && o.who.Account == who.Account {
			others++
		}
	}
	if others >= accountViewers {
		return nil, &relay.Error{
			Code: relay.CodeRateLimited, Detail: "the account has too many live views open; close some", RetryAfter: 5 * time.Second,
		}
	}
	f.viewers[v] = true
	if f.rights != rights { // what was learnt may be outdated, and only viewers are looked at again
		f.putRights(relay.Change{Kind: relay.ChangeAccount, Account: who.Account})
		f.wakeRun()
	}
	items, known := f.since(lastID, v)
	switch {
	case lastID == "":
		v.start = f.id(f.seq)
	case known:
		v.give(items)
	default:
		v.resync(f.id(f.seq))
	}
	return v, nil
}

// Start implements relay.Subscription.
func (v *viewer) Start() string { return v.start }

// learn reads which aliases the actor may see. It returns ErrNotFound for a viewer of one
// alias that the actor may not see (any more).
func (v *viewer) learn(ctx context.Context) error {
	may, all := map[int64]bool{}, v.who.Kind == relay.ActorSystem
	if !all {
		list, err := v.f.Store.Aliases(ctx, v.who)
		if err != nil {
			return err
		}
		for i := range list {
			if id := list[i].ID; v.who.Alias == 0 || v.who.Alias == id {
				may[id] = true
			}
		}
	}
	v.mu.Lock()
	v.may, v.all = may, all
	v.mu.Unlock()
	if v.alias != 0 && !v.sees(v.alias) {
		return relay.ErrNotFound
	}
	return nil
}

// apply applies which accounts may see aliases that have changed. It returns ErrNotFound as
// learn does.
func (v *viewer) apply(aliases []int64, seenBy map[int64][]int64) error {
	if v.all {
		return nil
	}
	may := maps.Clone(v.may)
	person := v.who.Kind != relay.ActorShare && v.who.Kind != relay.ActorQueue
	for _, alias := range aliases {
		delete(may, alias)
		if person && (v.who.Alias == 0 || v.who.Alias == alias) && slices.Contains(seenBy[alias], v.who.Account) {
			may[alias] = true
		}
	}
	v.mu.Lock()
	v.may = may
	v.mu.Unlock()
	if v.alias != 0 && !v.sees(v.alias) {
		return relay.ErrNotFound
	}
	return nil
}

// sees reports whether the viewer shows the alias.
func (v *viewer) sees(alias int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shows(alias)
}

// shows does what sees does. The caller holds mu.
func (v *viewer) shows(alias int64) bool {
	return (v.alias == 0 || v.alias == alias) && (v.all || v.may[alias])
}

// give adds the items that the viewer may see. A viewer that falls behind gets one
// resync item instead.
func (v *viewer) give(items []relay.FeedItem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	behind := "" // the last item that a resync item stands for
	for i := range items {
		item, n := &items[i], len(v.pending)
		switch {
		case !v.shows(item.Alias):
		// Behind a resync item the viewer reads the changes up to this item with the earlier ones.
		case behind != "", isResync(v.pending), n >= pendingItems, n > 0 && v.size+len(item.Data) > pendingBytes:
			behind = item.ID
		default:
			v.pending = append(v.pending, *item)
			v.size += len(item.Data)
		}
	}
	if behind != "" {
		v.replace(behind)
	}
	v.signal()
}

// isResync reports whether items are one resync item.
func isResync(items []relay.FeedItem) bool { return len(items) == 1 && items[0].Name == itemResync }

// resync makes the viewer read its data again.
func (v *viewer) resync(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.replace(id)
	v.signal()
}

// replace puts one resync item in place of the items that wait. The caller holds mu.
func (v *viewer) replace(id string) {
	clear(v.pending)
	item := relay.FeedItem{Name: itemResync, Data: []byte("{}")}
	record.CompleteItem(&item, id)
	v.pending, v.size = append(v.pending[:0], item), 0
}

// signal wakes Next. The caller holds mu.
func (v *viewer) signal() {
	if len(v.pending) == 0 && v.ended == nil {
		return
	}
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

// cut ends the subscription with the error why.
func (v *viewer) cut(why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended == nil {
		v.ended = why
	}
	v.signal()
}

// Next waits for at least one item and returns all items that wait. It returns at most
// 20 times a second, and twice a second while the viewer cannot keep up.
func (v *viewer) Next(ctx context.Context) ([]relay.FeedItem, error) {
	var expiry <-chan time.Time
	if !v.who.ExpiresAt.IsZero() {
		t := time.NewTimer(time.Until(v.who.ExpiresAt))
		defer t.Stop()
		expiry = t.C
	}
	for {
		select {
		case <-v.ready:
		case <-expiry:
			return nil, relay.ErrNotFound
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		v.mu.Lock()
		pause := roundPause
		if v.again && isResync(v.pending) {
			pause = resyncPause
		}
		wait := pause - time.Since(v.last)
		if v.ended == nil && len(v.pending) > 0 && wait > 0 {
			v.mu.Unlock()
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			v.mu.Lock()
		}
		items, ended := v.pending, v.ended
		v.pending, v.size = nil, 0
		switch {
		case ended != nil:
			v.signal() // for the next call
			v.mu.Unlock()
			return nil, ended
		case len(items) > 0:
			v.last, v.again = time.Now(), isResync(items)
			v.mu.Unlock()
			return items, nil
		}
		v.mu.Unlock() // ready told of items that the call before returned
	}
}

// Close ends the subscription.
func (v *viewer) Close() {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	delete(v.f.viewers, v)
}
