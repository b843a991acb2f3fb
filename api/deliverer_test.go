package api_test

import (
	"context"
	"sync"
	"time"

	"relay"
	"relay/api"
	"relay/store"
)

// fakeDeliverer is a Deliverer whose results each test sets.
type fakeDeliverer struct {
	mu      sync.Mutex
	replays int
	replay  func(who relay.Actor, id relay.ID, wait time.Duration) (*relay.Event, int, error)
	release func(who relay.Actor, alias string) (int, error)
	cancel  func(who relay.Actor, id relay.ID) error
	state   relay.TunnelState
	send    func(who relay.Actor, out relay.Outgoing) (*relay.Event, error)
	feed    *fakeFeed
}

func (f *fakeDeliverer) Replay(_ context.Context, who relay.Actor, id relay.ID, wait time.Duration) (*relay.Event, int, error) {
	f.mu.Lock()
	f.replays++
	run := f.replay
	f.mu.Unlock()
	return run(who, id, wait)
}

func (f *fakeDeliverer) Send(_ context.Context, who relay.Actor, out relay.Outgoing, _ time.Duration) (*relay.Event, error) {
	f.mu.Lock()
	f.replays++
	run := f.send
	f.mu.Unlock()
	return run(who, out)
}

func (f *fakeDeliverer) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replays
}

func (f *fakeDeliverer) Release(_ context.Context, who relay.Actor, alias string) (int, error) {
	return f.release(who, alias)
}

func (f *fakeDeliverer) Cancel(_ context.Context, who relay.Actor, id relay.ID) error {
	return f.cancel(who, id)
}

func (f *fakeDeliverer) Status(_ context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error) {
	list := make([]relay.AliasStatus, len(aliases))
	for i := range list {
		list[i].State = relay.TunnelNever
		if f.state != "" {
			list[i].State = f.state
		}
	}
	return list, nil
}

func (f *fakeDeliverer) Subscribe(_ context.Context, who relay.Actor, alias int64, lastID string) (relay.Subscription, error) {
	f.feed.who, f.feed.alias, f.feed.lastID = who, alias, lastID
	return f.feed, nil
}

// fakeFeed is a feed of the items that a test puts into it.
type fakeFeed struct {
	who    relay.Actor
	alias  int64
	lastID string
	items  chan []relay.FeedItem
	start  string
	end    error // returned when items is closed
	closed chan struct{}
	once   sync.Once
}

func newFeed() *fakeFeed {
	return &fakeFeed{items: make(chan []relay.FeedItem), closed: make(chan struct{}), end: relay.ErrNotFound}
}

func (f *fakeFeed) Start() string { return f.start }

func (f *fakeFeed) Next(ctx context.Context) ([]relay.FeedItem, error) {
	select {
	case items, ok := <-f.items:
		if !ok {
			return nil, f.end
		}
		return items, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fakeFeed) Close() { f.once.Do(func() { close(f.closed) }) }

type optionsOf = api.Options

// expiring is a store in which every token belongs to alice and expires at the time in the field until.
type expiring struct {
	*store.Store
	until time.Time
}

func (e expiring) TokenOwner(context.Context, string) (relay.Actor, error) {
	return relay.Actor{Kind: relay.ActorToken, Account: 1, AccountName: "alice", Scopes: relay.AllScopes, ExpiresAt: e.until}, nil
}
