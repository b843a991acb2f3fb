package sshgate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"relay"
	"relay/record"
)

// fakeStore is an in-memory store and delivery, with the methods that the server uses.
type fakeStore struct {
	site     relay.Site
	mu       sync.Mutex
	claiming bool
	down     bool            // whether the store does not answer
	asked    [][]relay.Right // the rights of each call of Revoked
	keys     map[string]relay.Actor
	tokens   map[string]relay.Actor
	aliases  map[string]*relay.Alias
	members  map[string][]int64
	nextID   int64
	held     map[int64]*fakeHold
	subs     map[*fakeSub]bool
	events   map[relay.ID]*relay.Event
	refused  map[int64][]relay.RefusedForward // refused forwards, by account

	refusedLogins []string

	queued  map[int64]int
	slow    chan struct{} // if set, ClaimAlias waits until this channel is closed
	waiting map[string]*fakeEnrolment
	changed func([]relay.Change) // is called at the end of an enrolment
	pending chan struct{}        // gets a value when a replay begins; the replay then waits for the end of its context
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

// fakeHold is the relay.Attachment that fakeStore.Attach returns.
type fakeHold struct {
	store    *fakeStore
	alias    *relay.Alias
	tunnel   relay.Tunnel
	state    relay.TunnelState
	stales   int // number of calls of Stale
	detached bool
	graceful bool
	slots    chan struct{} // slots for requests of other nodes; nil = unlimited
	waiting  chan struct{} // gets an element for each request that finds no slot at once
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

func (h *fakeHold) Acquire(done <-chan struct{}) (func(), *relay.Error) {
	h.store.mu.Lock()
	slots := h.slots
	h.store.mu.Unlock()
	if slots == nil {
		return func() {}, nil
	}
	h.waiting <- struct{}{}
	select {
	case <-slots:
		return func() {}, nil
	case <-done:
		return nil, relay.ErrNotSent
	}
}

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

// hold returns the newest attachment of an alias.
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
	ended chan struct{} // closed when no more items will come
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

// endFeeds ends every live feed, as if the store had stopped answering.
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

// publish sends items to all subscribers. It unlocks the store before it sends, because a slow subscriber may call the
// store before it reads further items.
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

// taken reports whether every subscriber has read all published items.
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

// queue sets the number of queued events of an alias to n.
func (f *fakeStore) queue(a *relay.Alias, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued[a.ID] = n
}

// api serves the routes of /api/v1 that the commands in these tests use.
func (f *fakeStore) api(who relay.Actor) *http.Server {
	mux := http.NewServeMux()
	answer := func(pattern string, object func(r *http.Request) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			o := object(r)
			if p, failed := o.(*record.Problem); failed {
				w.WriteHeader(p.Status)
			}
			_ = json.NewEncoder(w).Encode(o)
		})
	}
	missing := func(r *http.Request) *record.Problem {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.aliases[r.FormValue("alias")] == nil {
			return record.ProblemOf(relay.ErrNotFound, "")
		}
		return nil
	}
	answer("GET /api/v1/me", func(*http.Request) any { return record.OfActor(who) })
	answer("GET /api/v1/events", func(r *http.Request) any {
		if p := missing(r); p != nil {
			return p
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		list := []*record.Summary{}
		for _, e := range f.events {
			if n, _ := strconv.Atoi(r.FormValue("limit")); e.Alias == r.FormValue("alias") && len(list) < n {
				list = append(list, record.Summarise(e, f.site, time.Now()))
			}
		}
		return record.ListOf(list)
	})
	answer("GET /api/v1/events/{id}", func(r *http.Request) any {
		f.mu.Lock()
		defer f.mu.Unlock()
		id, err := relay.ParseID(r.PathValue("id"))
		if e := f.events[id]; err == nil && e != nil {
			return record.Of(e, f.site, time.Now())
		}
		return record.ProblemOf(relay.ErrNotFound, "")
	})
	answer("GET /api/v1/aliases", func(r *http.Request) any { return record.ListOf([]record.Alias{}) })
	answer("POST /api/v1/aliases/{alias}/replay-queued", func(r *http.Request) any {
		f.mu.Lock()
		defer f.mu.Unlock()
		a := f.aliases[r.PathValue("alias")]
		n := f.queued[a.ID]
		f.queued[a.ID] = 0
		return record.Released{Alias: a.Name, Released: n}
	})
	answer("POST /api/v1/events/{id}/replay", func(r *http.Request) any {
		f.pending <- struct{}{}
		<-r.Context().Done()
		return nil
	})
	mux.HandleFunc("GET /api/v1/stream", func(w http.ResponseWriter, r *http.Request) {
		sub, _ := f.Subscribe(r.Context(), who, 0, "")
		defer sub.Close()
		for {
			_ = http.NewResponseController(w).Flush()
			items, err := sub.Next(r.Context())
			if err != nil {
				return
			}
			for _, item := range items {
				fmt.Fprintf(w, "id: 1\nevent: %s\ndata: %s\n\n", item.Name, item.Data)
			}
		}
	})
	return &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
}
