package feed

import (
	"context"
	"sync"
	"time"

	"relay"
)

// viewer is one subscriber of the live feed. It implements relay.Subscription.
type viewer struct {
	f     *Feed
	who   relay.Actor
	alias int64  // 0 = all that the actor may see
	start string // see Start

	mu      sync.Mutex
	all     bool
	may     map[int64]bool
	pending []relay.FeedItem
	size    int           // bytes of the items in pending
	ready   chan struct{} // has an element while items wait
	ended   error
	last    time.Time
}

// Subscribe opens the live feed for the actor; alias 0 means all aliases that the actor may
// see. lastID is the id of the last item that the viewer received, or "". Errors: ErrNotFound
// for an alias that the actor may not see, rate-limited when the account has too many viewers.
func (f *Feed) Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error) {
	v := &viewer{f: f, who: who, alias: alias, ready: make(chan struct{}, 1)}
	if err := v.learn(ctx); err != nil {
		return nil, err
	}
	if alias != 0 && !v.sees(alias) {
		return nil, relay.ErrNotFound
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		return nil, f.closed
	}
	if f.viewersOf(who) >= accountViewers {
		return nil, &relay.Error{
			Code: relay.CodeRateLimited, Detail: "the account has too many live views open; close some", RetryAfter: 5 * time.Second,
		}
	}
	f.viewers[v] = true
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

// viewersOf counts the viewers of an account; for relay.System it returns 0. The caller holds mu.
func (f *Feed) viewersOf(who relay.Actor) (n int) {
	if who.Kind == relay.ActorSystem {
		return 0
	}
	for v := range f.viewers {
		if v.who.Kind != relay.ActorSystem && v.who.Account == who.Account {
			n++
		}
	}
	return n
}

// learn reads which aliases the actor may see.
func (v *viewer) learn(ctx context.Context) error {
	if v.who.Kind == relay.ActorSystem {
		v.mu.Lock()
		v.all = true
		v.mu.Unlock()
		return nil
	}
	list, err := v.f.Store.Aliases(ctx, v.who)
	if err != nil {
		return err
	}
	may := make(map[int64]bool, len(list))
	for i := range list {
		if id := list[i].ID; v.who.Alias == 0 || v.who.Alias == id {
			may[id] = true
		}
	}
	v.mu.Lock()
	v.may = may
	v.mu.Unlock()
	return nil
}

// refresh reads the viewer's rights again, and ends the viewer if it is for one alias and may
// not see that alias any more. It returns false if the rights could not be read.
func (v *viewer) refresh(ctx context.Context) bool {
	if v.learn(ctx) != nil {
		return false
	}
	if v.alias != 0 && !v.sees(v.alias) {
		v.cut(relay.ErrNotFound)
	}
	return true
}

func (v *viewer) sees(alias int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return (v.alias == 0 || v.alias == alias) && (v.all || v.may[alias])
}

// give adds the items that the viewer may see. A viewer that falls behind gets one
// resync item instead.
func (v *viewer) give(items []relay.FeedItem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, item := range items {
		if v.alias != 0 && v.alias != item.Alias || !v.all && !v.may[item.Alias] {
			continue
		}
		if n := len(v.pending); n >= pendingItems || n > 0 && v.size+len(item.Data) > pendingBytes {
			clear(v.pending)
			v.pending, v.size = append(v.pending[:0], resyncItem(item.ID)), 0
			continue
		}
		if len(v.pending) == 1 && v.pending[0].Name == itemResync {
			v.pending[0].ID = item.ID // the viewer reads the changes up to this item with the earlier ones
			continue
		}
		v.pending = append(v.pending, item)
		v.size += len(item.Data)
	}
	v.signal()
}

func (v *viewer) resync(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.pending)
	v.pending, v.size = append(v.pending[:0], resyncItem(id)), 0
	v.signal()
}

func resyncItem(id string) relay.FeedItem {
	return relay.FeedItem{ID: id, Name: itemResync, Data: []byte("{}")}
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
// 20 times a second.
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
		if err := v.slow(ctx); err != nil {
			return nil, err
		}
		v.mu.Lock()
		items, ended := v.pending, v.ended
		v.pending, v.size = nil, 0
		if ended != nil {
			v.signal() // for the next call
		}
		v.last = time.Now()
		v.mu.Unlock()
		switch {
		case ended != nil:
			return nil, ended
		case len(items) > 0:
			return items, nil
		}
	}
}

// slow waits for the rest of roundPause since the last result.
func (v *viewer) slow(ctx context.Context) error {
	v.mu.Lock()
	wait := roundPause - time.Since(v.last)
	ended := v.ended
	v.mu.Unlock()
	if wait <= 0 || ended != nil {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the subscription.
func (v *viewer) Close() {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	delete(v.f.viewers, v)
}
