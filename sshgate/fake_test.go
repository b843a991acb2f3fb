package sshgate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// fakeHouse is engine room and cellar in memory, as far as the gate sees them.
type fakeHouse struct {
	mu       sync.Mutex
	claiming bool
	down     bool // the store does not answer
	keys     map[string]relay.Actor
	tokens   map[string]relay.Actor
	aliases  map[string]*relay.Alias
	members  map[string][]int64
	nextID   int64
	held     map[int64]*fakeHold
	subs     map[*fakeSub]bool
	events   map[relay.ID]*relay.Event
	released []string
	queued   map[int64]int
	slow     chan struct{} // if set, ClaimAlias waits for it
}

func newHouse() *fakeHouse {
	return &fakeHouse{
		claiming: true,
		keys:     map[string]relay.Actor{},
		tokens:   map[string]relay.Actor{},
		aliases:  map[string]*relay.Alias{},
		members:  map[string][]int64{},
		held:     map[int64]*fakeHold{},
		subs:     map[*fakeSub]bool{},
		events:   map[relay.ID]*relay.Event{},
		queued:   map[int64]int{},
	}
}

// fakeHold is an attachment.
type fakeHold struct {
	house    *fakeHouse
	alias    *relay.Alias
	tunnel   relay.Tunnel
	state    relay.TunnelState
	detached bool
	graceful bool
}

func (h *fakeHold) current() bool { return h.house.held[h.alias.ID] == h && !h.detached }

func (h *fakeHold) set(s relay.TunnelState) {
	h.house.mu.Lock()
	defer h.house.mu.Unlock()
	if h.current() {
		h.state = s
	}
}

func (h *fakeHold) Stale()  { h.set(relay.TunnelStale) }
func (h *fakeHold) Online() { h.set(relay.TunnelOnline) }

func (h *fakeHold) Detach(graceful bool) {
	h.house.mu.Lock()
	defer h.house.mu.Unlock()
	if h.current() {
		h.detached, h.graceful, h.state = true, graceful, relay.TunnelOffline
	}
}

func (f *fakeHouse) Attach(a *relay.Alias, t relay.Tunnel) relay.Attachment {
	f.mu.Lock()
	old := f.held[a.ID]
	h := &fakeHold{house: f, alias: a, tunnel: t, state: relay.TunnelOnline}
	f.held[a.ID] = h
	f.mu.Unlock()
	if old != nil && !old.detached {
		old.tunnel.Close("taken over by a newer connection")
	}
	return h
}

func (f *fakeHouse) Status(_ context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error) {
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
func (f *fakeHouse) hold(alias string) *fakeHold {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.aliases[alias]; a != nil {
		return f.held[a.ID]
	}
	return nil
}

func (f *fakeHouse) state(alias string) relay.TunnelState {
	h := f.hold(alias)
	if h == nil {
		return relay.TunnelNever
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return h.state
}

type fakeSub struct {
	house *fakeHouse
	items chan []relay.FeedItem
}

func (s *fakeSub) Next(ctx context.Context) ([]relay.FeedItem, error) {
	select {
	case items := <-s.items:
		return items, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *fakeSub) Close() {
	s.house.mu.Lock()
	defer s.house.mu.Unlock()
	delete(s.house.subs, s)
}

func (f *fakeHouse) Subscribe(context.Context, relay.Actor, int64, string) (relay.Subscription, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &fakeSub{house: f, items: make(chan []relay.FeedItem, 4096)}
	f.subs[s] = true
	return s, nil
}

func (f *fakeHouse) subscribers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subs)
}

func (f *fakeHouse) publish(items ...relay.FeedItem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		s.items <- items
	}
}

func (f *fakeHouse) KeyOwner(_ context.Context, fingerprint string) (relay.Actor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return relay.Actor{}, errors.New("connection refused")
	}
	who, ok := f.keys[fingerprint]
	if !ok {
		return relay.Actor{}, relay.ErrNotFound
	}
	return who, nil
}

func (f *fakeHouse) mayUse(a *relay.Alias, who relay.Actor) bool {
	if a.Owner == who.Account {
		return true
	}
	for _, m := range f.members[a.Name] {
		if m == who.Account {
			return true
		}
	}
	return false
}

func (f *fakeHouse) ClaimAlias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error) {
	if f.slow != nil {
		select {
		case <-f.slow:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !relay.ValidLabel(name) || relay.ReservedLabel(name) {
		return nil, relay.Errorf(relay.CodeValidationFailed, "%s is not a valid name", name)
	}
	a := f.aliases[name]
	switch {
	case a == nil && f.claiming:
		return f.add(name, who.Account), nil
	case a == nil || !f.mayUse(a, who):
		return nil, relay.ErrNotFound
	}
	return a, nil
}

func (f *fakeHouse) add(name string, owner int64) *relay.Alias {
	f.nextID++
	a := &relay.Alias{ID: f.nextID, Name: name, Owner: owner, Settings: relay.DefaultSettings()}
	f.aliases[name] = a
	return a
}

// alias makes an alias.
func (f *fakeHouse) alias(name string, owner int64) *relay.Alias {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.add(name, owner)
}

func (f *fakeHouse) Aliases(_ context.Context, who relay.Actor) ([]relay.Alias, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []relay.Alias
	for _, a := range f.aliases {
		if f.mayUse(a, who) {
			list = append(list, *a)
		}
	}
	return list, nil
}

func (f *fakeHouse) NoteLogin(relay.Actor, string) {}

func (f *fakeHouse) StillValid(_ context.Context, who relay.Actor) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errors.New("connection refused")
	}
	for _, proofs := range []map[string]relay.Actor{f.keys, f.tokens} {
		for _, known := range proofs {
			if known.Credential == who.Credential {
				return nil
			}
		}
	}
	return relay.ErrNotFound
}

func (f *fakeHouse) Keys(context.Context, relay.Actor, string) ([]relay.Key, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []relay.Key
	for fp, who := range f.keys {
		list = append(list, relay.Key{ID: who.Credential, Fingerprint: fp, Type: "ssh-ed25519", Name: "laptop"})
	}
	return list, nil
}

func (f *fakeHouse) AddKey(_ context.Context, who relay.Actor, _, _, line string) (relay.Key, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return relay.Key{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fp := ssh.FingerprintSHA256(key)
	if _, taken := f.keys[fp]; taken {
		return relay.Key{}, relay.Errorf(relay.CodeConflict, "this key is registered already")
	}
	f.keys[fp] = relay.Actor{
		Account: who.Account, AccountName: who.AccountName, Kind: relay.ActorSSH, Name: who.AccountName,
		Scopes: relay.AllScopes, Credential: "key_" + fp,
	}
	return relay.Key{Fingerprint: fp}, nil
}

func (f *fakeHouse) TokenOwner(_ context.Context, secret string) (relay.Actor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	who, ok := f.tokens[secret]
	if !ok {
		return relay.Actor{}, relay.ErrNotFound
	}
	return who, nil
}

func (f *fakeHouse) CreateLoginLink(_ context.Context, who relay.Actor, user string, _ time.Duration) (string, error) {
	return "secret-for-" + user, nil
}

func (f *fakeHouse) CreateShare(_ context.Context, _ relay.Actor, id relay.ID, view bool, expires time.Time) (relay.Share, string, error) {
	if _, err := f.Event(context.Background(), relay.Actor{}, id, 0); err != nil {
		return relay.Share{}, "", err
	}
	return relay.Share{ID: "shr_1", Event: id, View: view, ExpiresAt: expires}, "sharesecret", nil
}

func (f *fakeHouse) CreateToken(_ context.Context, who relay.Actor, t relay.Token) (relay.Token, string, error) {
	t.ID, t.AccountName, t.Scopes = "tok_1", who.AccountName, who.Scopes
	return t, "rly_secret", nil
}

func (f *fakeHouse) Events(_ context.Context, _ relay.Actor, q relay.Filter) (relay.Page, error) {
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

func (f *fakeHouse) Event(_ context.Context, _ relay.Actor, id relay.ID, _ int) (*relay.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.events[id]
	if !ok {
		return nil, relay.ErrNotFound
	}
	return e, nil
}

func (f *fakeHouse) Replay(_ context.Context, _ relay.Actor, id relay.ID, _ time.Duration) (*relay.Event, int, error) {
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

func (f *fakeHouse) Release(_ context.Context, _ relay.Actor, alias string) (int, error) {
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
func (f *fakeHouse) event(n byte, a *relay.Alias) *relay.Event {
	id := relay.ID{0x01, 0x93, 15: n}
	at := time.UnixMilli(1_760_000_000_000)
	head := "POST /hook HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
	e := &relay.Event{
		ID: id, AliasID: a.ID, Alias: a.Name, ReceivedAt: at, LastAskedAt: at,
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
func (f *fakeHouse) queue(a *relay.Alias, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued[a.ID] = n
}

func (f *fakeHouse) forget(e *relay.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.events, e.ID)
}
