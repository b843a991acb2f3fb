package sshgate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"relay"
	"relay/record"
)

// fakeStore is store and delivery in memory, as far as the server uses them.
type fakeStore struct {
	mu       sync.Mutex
	claiming bool
	down     bool            // the store does not answer
	asked    [][]relay.Right // by Revoked
	keys     map[string]relay.Actor
	tokens   map[string]relay.Actor
	aliases  map[string]*relay.Alias
	members  map[string][]int64
	nextID   int64
	held     map[int64]*fakeHold
	subs     map[*fakeSub]bool
	events   map[relay.ID]*relay.Event
	released []string
	refused  map[int64][]relay.RefusedForward // forwards, by account
	queued   map[int64]int
	token    relay.Token   // the one made last
	slow     chan struct{} // if set, ClaimAlias waits for it
	waiting  map[string]*fakeEnrolment
	changed  func([]relay.Change) // gets the ends of enrolments
	pending  chan struct{}        // if set, Replay tells of itself there, and waits for the end of its context
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		claiming: true,
		keys:     map[string]relay.Actor{},
		waiting:  map[string]*fakeEnrolment{},
		tokens:   map[string]relay.Actor{},
		aliases:  map[string]*relay.Alias{},
		members:  map[string][]int64{},
		held:     map[int64]*fakeHold{},
		subs:     map[*fakeSub]bool{},
		events:   map[relay.ID]*relay.Event{},
		queued:   map[int64]int{},
		refused:  map[int64][]relay.RefusedForward{},
	}
}

// fakeHold is an attachment.
type fakeHold struct {
	store    *fakeStore
	alias    *relay.Alias
	tunnel   relay.Tunnel
	state    relay.TunnelState
	stales   int // how often it was told to be stale
	detached bool
	graceful bool
}

func (h *fakeHold) current() bool { return h.store.held[h.alias.ID] == h && !h.detached }

func (h *fakeHold) set(s relay.TunnelState) {
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	if s == relay.TunnelStale {
		h.stales++
	}
	if h.current() {
		h.state = s
	}
}

func (h *fakeHold) Stale()  { h.set(relay.TunnelStale) }
func (h *fakeHold) Online() { h.set(relay.TunnelOnline) }

func (h *fakeHold) Acquire(<-chan struct{}) (func(), *relay.Error) { return func() {}, nil }

func (h *fakeHold) Detach(graceful bool) {
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	if h.current() {
		h.detached, h.graceful, h.state = true, graceful, relay.TunnelOffline
	}
}

func (f *fakeStore) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	f.mu.Lock()
	old := f.held[a.ID]
	h := &fakeHold{store: f, alias: a, tunnel: t, state: relay.TunnelOnline}
	f.held[a.ID] = h
	f.mu.Unlock()
	if old != nil && !old.detached {
		old.tunnel.Close("taken over by a newer connection")
	}
	return h
}

func (f *fakeStore) Status(_ context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]relay.AliasStatus, len(aliases))
	for i, a := range aliases {
		list[i].State = relay.TunnelNever
		list[i].QueuedEvents = f.queued[a.ID]
		if h := f.held[a.ID]; h != nil {
			list[i].State = h.state
			if !h.detached {
				info := h.tunnel.Info()
				list[i].Tunnel = &info
			}
		}
	}
	return list, nil
}

// hold is the newest attachment of an alias.
func (f *fakeStore) hold(alias string) *fakeHold {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.aliases[alias]; a != nil {
		return f.held[a.ID]
	}
	return nil
}

func (f *fakeStore) state(alias string) relay.TunnelState {
	h := f.hold(alias)
	if h == nil {
		return relay.TunnelNever
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return h.state
}

type fakeSub struct {
	store *fakeStore
	items chan []relay.FeedItem
	gone  chan struct{} // closed by Close
	ended chan struct{} // closed when it has no more to give
}

func (s *fakeSub) Next(ctx context.Context) ([]relay.FeedItem, error) {
	select {
	case items := <-s.items:
		return items, nil
	case <-s.ended:
		return nil, errors.New("the store does not answer")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *fakeSub) Start() string { return "" }

func (s *fakeSub) Close() {
	close(s.gone)
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	delete(s.store.subs, s)
}

func (f *fakeStore) Subscribe(context.Context, relay.Actor, int64, string) (relay.Subscription, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &fakeSub{store: f, items: make(chan []relay.FeedItem, 4096), gone: make(chan struct{}), ended: make(chan struct{})}
	f.subs[s] = true
	return s, nil
}

// endFeeds ends every live feed, as a store that does not answer does.
func (f *fakeStore) endFeeds() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		close(s.ended)
	}
}

func (f *fakeStore) subscribers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subs)
}

// publish never holds a lock while a subscriber is slow: it may ask the store
// something before it reads on.
func (f *fakeStore) publish(items ...relay.FeedItem) {
	f.mu.Lock()
	subs := slices.Collect(maps.Keys(f.subs))
	f.mu.Unlock()
	for _, s := range subs {
		select {
		case s.items <- items:
		case <-s.gone:
		}
	}
}

// taken tells whether every subscriber has taken all that was published.
func (f *fakeStore) taken() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		if len(s.items) > 0 {
			return false
		}
	}
	return true
}

func (f *fakeStore) Events(_ context.Context, _ relay.Actor, q relay.Filter) (relay.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.aliases[q.Alias] == nil {
		return relay.Page{}, relay.ErrNotFound
	}
	var p relay.Page
	for _, e := range f.events {
		if e.Alias == q.Alias && len(p.Events) < q.Limit && (q.Method == "" || q.Method == e.Method) &&
			strings.HasPrefix(string(e.Target), q.Path) && !e.ReceivedAt.Before(q.Since) {
			p.Events = append(p.Events, *e)
		}
	}
	return p, nil
}

func (f *fakeStore) Matches(_ context.Context, _ relay.Actor, id relay.ID, q relay.Filter) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	texts := record.NewTextSearch(q.Texts)
	return texts.Search(f.events[id].Request.Body.Data), nil
}

func (f *fakeStore) BodyPart(_ context.Context, id relay.ID, n, _ int) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n == 0 {
		return f.events[id].Request.Body.Data, nil
	}
	return f.events[id].Attempts[n-1].Response.Body.Data, nil
}

func (f *fakeStore) Event(_ context.Context, _ relay.Actor, id relay.ID, _ int) (*relay.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.events[id]
	if !ok {
		return nil, relay.ErrNotFound
	}
	return e, nil
}

func (f *fakeStore) Replay(ctx context.Context, _ relay.Actor, id relay.ID, _ time.Duration) (*relay.Event, int, error) {
	if f.pending != nil {
		f.pending <- struct{}{}
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.events[id]
	if !ok {
		return nil, 0, relay.ErrNotFound
	}
	if e.Blocker != "" {
		return nil, 0, &relay.Error{Code: relay.CodeEventNotReplayable, Detail: "this event cannot be replayed", Reason: e.Blocker}
	}
	return e, len(e.Attempts), nil
}

func (f *fakeStore) Release(_ context.Context, _ relay.Actor, alias string) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.aliases[alias]
	if a == nil {
		return 0, relay.ErrNotFound
	}
	f.released = append(f.released, alias)
	n := f.queued[a.ID]
	f.queued[a.ID] = 0
	return n, nil
}

// event stores an event with one delivered attempt.
func (f *fakeStore) event(n byte, a *relay.Alias) *relay.Event {
	id := relay.ID{0x01, 0x93, 15: n}
	at := time.UnixMilli(1_760_000_000_000)
	head := "POST /hook HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
	e := &relay.Event{
		ID: id, AliasID: a.ID, Alias: a.Name, ReceivedAt: at, LastReceivedAt: at,
		Method: "POST", Target: []byte("/hook"), HTTPMinor: 1, Host: "x", State: relay.StateDelivered,
		Status: 200, Latency: 23 * time.Millisecond, HasLatency: true, AttemptCount: 1,
		Request: relay.Message{
			Head: []byte(head), Framing: relay.FramingLength,
			Body: relay.Body{Data: []byte("hi"), Stored: 2, Size: 2, State: relay.BodyComplete},
		},
		Attempts: []relay.Attempt{{
			N: 1, Kind: relay.KindOriginal, State: relay.StateDelivered, ReceivedAt: at, StartedAt: at, EndedAt: at,
			Connection: relay.ConnectionNew, Timing: relay.Timing{Wait: 23 * time.Millisecond}, HasTiming: true,
			HasResponse: true, Status: 200, ResponseState: relay.ResponseComplete,
			Response: relay.Message{
				Head: []byte("HTTP/1.1 200 OK\r\nX-Evil: \x1b[2J\r\n\r\n"), Framing: relay.FramingNone,
				Body: relay.Body{State: relay.BodyComplete},
			},
		}},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events[id] = e
	return e
}

// queue makes n events wait at an alias.
func (f *fakeStore) queue(a *relay.Alias, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued[a.ID] = n
}

func (f *fakeStore) forget(e *relay.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.events, e.ID)
}
