package feed

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"relay"
	"relay/record"
)

// viewer is one subscriber of the live feed. It implements relay.Subscription. The mutex of the feed
// guards the fields below ready.
type viewer struct {
	f     *Feed
	who   relay.Actor
	alias int64         // 0 = all aliases that the actor may see
	start string        // the result of Start
	ready chan struct{} // holds an element when Next has something to do

	may             map[int64]bool // aliases that the actor may see
	changed, learnt int            // changed counts the changes of the viewer's rights; learnt is the value of changed when the map may was read
	pending         []relay.FeedItem
	size            int  // bytes of the items in pending
	behind          bool // the viewer gets a resync item in place of pending
	ended           error
	expiry          *time.Timer // ends the subscription when the credential of the viewer expires; nil = never
	last            time.Time   // when Next last returned items
	again           bool        // the last result of Next was a resync item
}

// Subscribe opens the live feed for the actor; alias 0 means all aliases that the actor may see. lastID
// is the id of the last item that the viewer received, or "". If there were changes since, the viewer
// gets a resync item. Errors: ErrNotFound for an alias that the actor may not see, rate-limited when the
// account has too many viewers.
func (f *Feed) Subscribe(ctx context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error) {
	v := &viewer{f: f, who: who, alias: alias, ready: make(chan struct{}, 1), changed: 1}
	err := f.add(v)
	if err == nil {
		err = v.learn(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err = cmp.Or(err, v.ended); err != nil {
		f.remove(v)
		return nil, err
	}
	// The viewer reads its data after Subscribe has returned, so it needs no earlier changes.
	v.pending, v.size = nil, 0
	if v.behind = lastID != "" && lastID != f.id(); lastID == "" {
		v.start = f.id()
	}
	v.signal()
	return v, nil
}

// add adds a viewer, which gets all changes from now on.
func (f *Feed) add(v *viewer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	others := 0
	for o := range f.viewers {
		if v.who.Kind != relay.ActorSystem && o.who.Kind != relay.ActorSystem && o.who.Account == v.who.Account {
			others++
		}
	}
	switch {
	case f.closed != nil:
		return f.closed
	case others >= accountViewers:
		return &relay.Error{Code: relay.CodeRateLimited, Detail: "the account has too many live views open; close some", RetryAfter: 5 * time.Second}
	}
	f.viewers[v] = true
	if !v.who.ExpiresAt.IsZero() {
		v.expiry = time.AfterFunc(time.Until(v.who.ExpiresAt), func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			v.cut(relay.ErrNotFound)
		})
	}
	return nil
}

// Start implements relay.Subscription.
func (v *viewer) Start() string { return v.start }

// outdate notes that the rights of the viewer may have changed.
func (v *viewer) outdate() {
	v.changed++
	v.signal()
}

// learn reads the aliases that the actor may see, if they may have changed. It ends a viewer without
// rights.
func (v *viewer) learn(ctx context.Context) error {
	v.f.mu.Lock()
	changed, before := v.changed, v.may
	done := changed == v.learnt || v.ended != nil
	v.f.mu.Unlock()
	if done {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var list []relay.Alias
	err := v.f.Rights.StillValid(ctx, v.who)
	if err == nil && v.who.Kind != relay.ActorSystem {
		list, err = v.f.Rights.Aliases(ctx, v.who)
	}
	if err != nil && !errors.Is(err, relay.ErrNotFound) {
		return err
	}
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	v.may, v.learnt = map[int64]bool{}, changed
	for i := range list {
		id := list[i].ID
		if v.may[id] = v.who.Alias == 0 || v.who.Alias == id; before != nil && !before[id] && v.f.unseen[id] && v.sees(id) {
			// If another node published an event before its alias, the feed may have left out changes of this
			// alias.
			v.fallBehind()
		}
	}
	if err != nil || v.alias != 0 && !v.sees(v.alias) {
		v.cut(relay.ErrNotFound)
	}
	return nil
}

// sees reports whether the viewer may see the alias. While its rights are outdated it returns true;
// Next then leaves out items that the viewer may not see.
func (v *viewer) sees(alias int64) bool {
	return (v.alias == 0 || v.alias == alias) && (v.may[alias] || v.who.Kind == relay.ActorSystem || v.changed != v.learnt)
}

// give adds items for the viewer. A viewer that falls behind gets a resync item instead; taken is then
// false.
func (v *viewer) give(items []relay.FeedItem) (taken bool) {
	for i := range items {
		if n := len(v.pending); v.behind || n >= pendingItems || n > 0 && v.size+len(items[i].Data) > pendingBytes {
			v.fallBehind()
			return false
		}
		v.pending = append(v.pending, items[i])
		v.size += len(items[i].Data)
	}
	v.signal()
	return true
}

// fallBehind makes the viewer read its data again.
func (v *viewer) fallBehind() {
	v.pending, v.size, v.behind = nil, 0, true
	v.signal()
}

// signal wakes Next.
func (v *viewer) signal() {
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

// cut ends the subscription with the error why.
func (v *viewer) cut(why error) {
	v.ended = cmp.Or(v.ended, why)
	v.signal()
}

// Next waits for at least one item and returns all items that wait. It returns at most
// 20 times a second, and at most twice a second while the viewer cannot keep up.
func (v *viewer) Next(ctx context.Context) ([]relay.FeedItem, error) {
	for {
		select {
		case <-v.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		wait := retryPause // pause before the rights of the viewer are read again after an error; the viewer stays subscribed
		if err := v.learn(ctx); err != nil {
			v.signal()
		} else if items, early, err := v.take(); err != nil || len(items) > 0 {
			return items, err
		} else {
			wait = early
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take returns the waiting items, except those of aliases that the viewer does not see. If the next result is
// not due yet, it returns the time to wait.
func (v *viewer) take() (items []relay.FeedItem, wait time.Duration, err error) {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	pause := roundPause
	if v.again && v.behind {
		pause = resyncPause
	}
	switch wait = pause - time.Since(v.last); {
	case v.ended != nil:
		// This makes the next call return at once as well.
		v.signal()
		return nil, 0, v.ended
	case len(v.pending) == 0 && !v.behind:
		return nil, 0, nil
	case wait > 0, v.changed != v.learnt:
		v.signal()
		return nil, wait, nil
	}
	items = slices.DeleteFunc(v.pending, func(item relay.FeedItem) bool { return !v.sees(item.Alias) })
	if v.behind {
		// The resync item stands for all changes until now.
		items = []relay.FeedItem{{Name: "resync", Data: []byte("{}")}}
		record.CompleteItem(&items[0], v.f.id())
	}
	v.last, v.again = time.Now(), v.behind
	v.pending, v.size, v.behind = nil, 0, false
	return items, 0, nil
}

// Close ends the subscription.
func (v *viewer) Close() {
	v.f.mu.Lock()
	defer v.f.mu.Unlock()
	v.f.remove(v)
}

// remove ends the work of the feed for a viewer. The caller holds mu.
func (f *Feed) remove(v *viewer) {
	delete(f.viewers, v)
	if v.expiry != nil {
		v.expiry.Stop()
	}
}
