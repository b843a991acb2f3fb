package delivery_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"relay"
)

func copyOf(e *relay.Event) *relay.Event {
	c := *e
	c.Attempts = slices.Clone(e.Attempts)
	return &c
}

func (s *memStore) BeginReplay(_ context.Context, who relay.Actor, id relay.ID, deliver bool) (*relay.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[id]
	if e == nil {
		return nil, relay.ErrNotFound
	}
	if e.Blocker != "" || e.Request.Body.State != relay.BodyComplete {
		return nil, &relay.Error{Code: relay.CodeEventNotReplayable, Reason: e.Blocker}
	}
	state := relay.StateQueued
	if deliver {
		state = relay.StateDelivering
	}
	n := len(e.Attempts) + 1
	e.Attempts = append(e.Attempts, relay.Attempt{N: n, Kind: relay.KindReplay, State: state, ReceivedAt: time.Now(), Actor: who.String()})
	e.State = state
	s.failing["event"] = s.failing["event once begun"]
	return &relay.Claim{Event: copyOf(e), N: n}, nil
}

func (s *memStore) FinishAndClaim(id relay.ID, a *relay.Attempt, event string, next relay.NextClaim) (*relay.Ticket, func() *relay.Claim) {
	return s.Finish(id, a, event), func() *relay.Claim {
		c, _ := s.Next(next)
		return c
	}
}

func (s *memStore) MayClaim() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing["MayClaim"]
}

func (s *memStore) Next(next relay.NextClaim) (*relay.Claim, error) {
	alias, auto := next.Alias, next.Auto
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failing["Next"]; err != nil {
		return nil, err
	}
	var best *relay.Attempt
	var of *relay.Event
	for _, id := range s.order {
		e := s.events[id]
		for i := range e.Attempts {
			a := &e.Attempts[i]
			if e.AliasID == alias && a.State == relay.StateQueued && (auto || a.Released || a.Kind == relay.KindReplay) &&
				(best == nil || a.ReceivedAt.Before(best.ReceivedAt)) {
				best, of = a, e
			}
		}
	}
	if best == nil {
		return nil, nil
	}
	best.State, of.State = relay.StateDelivering, relay.StateDelivering
	return &relay.Claim{Event: copyOf(of), N: best.N}, nil
}

func (s *memStore) Release(_ context.Context, _ relay.Actor, alias string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.events {
		if len(e.Attempts) == 0 {
			continue
		}
		if a := &e.Attempts[0]; e.Alias == alias && a.State == relay.StateQueued && !a.Released {
			a.Released = true
			n++
		}
	}
	return n, nil
}

func (s *memStore) Cancel(_ context.Context, _ relay.Actor, id relay.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[id]
	for i := range e.Attempts {
		if e.Attempts[i].State == relay.StateQueued {
			e.Attempts[i].State = relay.StateCanceled
		}
	}
	return nil
}

func (s *memStore) Attempts(ctx context.Context, who relay.Actor, id relay.ID, page relay.AttemptPage) ([]relay.Attempt, error) {
	e, err := s.Event(ctx, who, id, page.MaxBody)
	if err != nil {
		return nil, err
	}
	list := e.Attempts
	slices.Reverse(list)
	list = slices.DeleteFunc(list, func(a relay.Attempt) bool { return page.Before > 0 && a.N >= page.Before })
	return list[:min(len(list), page.Limit)], nil
}

func (s *memStore) Request(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error) {
	e, err := s.Event(ctx, who, id, maxBody)
	if err == nil {
		e.Attempts = nil
	}
	return e, err
}

func (s *memStore) Event(_ context.Context, _ relay.Actor, id relay.ID, _ int) (*relay.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[id]
	switch err := s.failing["event"]; {
	case err != nil:
		return nil, err
	case e == nil:
		return nil, relay.ErrNotFound
	}
	return copyOf(e), nil
}

func (s *memStore) Summaries(_ context.Context, ids []relay.ID) (list []relay.Event, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	for _, id := range ids {
		if e := s.events[id]; e != nil {
			list = append(list, *copyOf(e))
		}
	}
	return list, nil
}

func (s *memStore) AttemptHeads(_ context.Context, _ int64, refs []relay.AttemptRef) (map[relay.AttemptRef]*relay.Attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads += len(refs)
	s.headReads++
	heads := map[relay.AttemptRef]*relay.Attempt{}
	for _, r := range refs {
		if _, a := s.attempt(r.Event, r.N); a != nil {
			c := *a
			heads[r] = &c
		}
	}
	return heads, nil
}

func (s *memStore) BodyPart(_ context.Context, id relay.ID, n, i int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failing["part"]; err != nil {
		return nil, err
	}
	p, ok := s.parts[partKey{id, n, i}]
	if !ok {
		return nil, relay.ErrNotFound
	}
	return p, nil
}

func (s *memStore) CheckParts(_ context.Context, id relay.ID, n, parts int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range parts {
		if _, ok := s.parts[partKey{id, n, i}]; !ok {
			return relay.ErrNotFound
		}
	}
	return s.failing["check"]
}

func (s *memStore) QueueStats(ctx context.Context, ids []int64) (map[int64]relay.QueueStats, error) {
	s.mu.Lock()
	slow := s.slowCounts
	s.mu.Unlock()
	if slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	all, err := s.AllQueueStats(ctx)
	if err != nil {
		return nil, err
	}
	out := map[int64]relay.QueueStats{}
	for _, id := range ids {
		out[id] = all[id]
	}
	return out, nil
}

func (s *memStore) AllQueueStats(context.Context) (map[int64]relay.QueueStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failing["stats"]; err != nil {
		return nil, err
	}
	out := map[int64]relay.QueueStats{}
	for _, e := range s.events {
		for _, a := range e.Attempts {
			if a.State == relay.StateQueued {
				q := out[e.AliasID]
				q.Queued++
				q.QueuedBytes += int64(len(e.Request.Head)+len(e.Request.Lines)) + e.Request.Body.Size
				out[e.AliasID] = q
			}
		}
	}
	return out, nil
}

func (s *memStore) LastEvents(context.Context, []int64) (map[int64]time.Time, error) {
	return nil, nil
}

func (s *memStore) AllAliases(context.Context) (list []relay.Alias, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.aliases {
		list = append(list, *a)
	}
	return list, nil
}

func (s *memStore) AliasByID(_ context.Context, id int64) (*relay.Alias, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.aliases[id]
	if a == nil {
		return nil, relay.ErrNotFound
	}
	c := *a
	return &c, nil
}

func (s *memStore) Alias(_ context.Context, _ relay.Actor, name string) (*relay.Alias, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.aliases {
		if a.Name == name {
			c := *a
			return &c, nil
		}
	}
	return nil, relay.ErrNotFound
}

func (s *memStore) AllOpenSecrets(context.Context) (map[int64]relay.OpenSecrets, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.secrets), s.failing["secrets"]
}

func (s *memStore) OpenSecrets(_ context.Context, alias int64) (relay.OpenSecrets, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets[alias], s.failing["secrets"]
}

func (s *memStore) Aliases(_ context.Context, who relay.Actor) (list []relay.Alias, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rightsReads++
	if err := s.failing["aliases"]; err != nil {
		return nil, err
	}
	for _, a := range s.aliases {
		if a.Owner == who.Account {
			list = append(list, *a)
		}
	}
	return list, nil
}

func (s *memStore) AccountsOf(_ context.Context, ids []int64) (map[int64][]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rightsReads++
	if err := s.failing["aliases"]; err != nil {
		return nil, err
	}
	out := map[int64][]int64{}
	for _, id := range ids {
		if a := s.aliases[id]; a != nil {
			out[id] = []int64{a.Owner}
		}
	}
	return out, nil
}

func (s *memStore) NodeID() string { return "here" }

func (s *memStore) StoreTunnels(_ context.Context, writes []relay.TunnelWrite) (replaced []relay.TunnelRecord, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failing["tunnels"]; err != nil {
		return nil, err
	}
	s.touches++
	for _, w := range writes {
		s.touched[w.Alias]++
		had, known := s.tunnels[w.Alias]
		if w.Op != relay.TunnelAttach && known && had.ID != w.ID {
			continue
		}
		s.lastOnline[w.Alias] = w.At
		if w.Node = "here"; w.Op == relay.TunnelDetach {
			delete(s.tunnels, w.Alias)
			continue
		}
		if known && had.Node != w.Node {
			replaced = append(replaced, had)
		}
		s.tunnels[w.Alias] = w.TunnelRecord
	}
	return replaced, nil
}

func (s *memStore) AddRequests(_ context.Context, counts map[string]int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range counts {
		s.requests[id] += n
	}
	return nil
}

func (s *memStore) AnnounceQueues(_ context.Context, aliases []int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = append(s.announced, aliases...)
	return nil
}

func (s *memStore) TunnelsOf(_ context.Context, aliases []int64) (map[int64]relay.TunnelRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[int64]relay.TunnelRecord{}
	for _, id := range aliases {
		if r, known := s.tunnels[id]; known {
			out[id] = r
		}
	}
	return out, s.failing["tunnels"]
}

func (s *memStore) AllTunnels(context.Context) ([]relay.TunnelRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.tunnels)), s.failing["tunnels"]
}

func (s *memStore) LastOnline(_ context.Context, aliases []int64) (map[int64]time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[int64]time.Time{}
	for _, id := range aliases {
		if at, known := s.lastOnline[id]; known {
			out[id] = at
		}
	}
	return out, s.failing["tunnels"]
}

func (s *memStore) NoteTakeover(_ *relay.Alias, from, by relay.TunnelInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeovers = append(s.takeovers, from.User+" "+by.User)
}

func (s *memStore) StillValid(context.Context, relay.Actor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.invalid {
		return relay.ErrNotFound
	}
	return s.failing["valid"]
}

// TestEventQueuedAfterItsCallerWasRefused: a request that is queued after its caller got store-unavailable is
// canceled, and not delivered.
func TestEventQueuedAfterItsCallerWasRefused(t *testing.T) {
	var k bodyRecorder
	run(t, nil, func(b *fixture) {
		b.s.delay = 15 * time.Second
		out, _ := b.send(post)
		b.want("code", code(out), relay.CodeStoreUnavailable)
		time.Sleep(10 * time.Second)
		b.s.delay = 0
		time.Sleep(time.Minute)
		b.want("state", b.event().Attempts[0].State, relay.StateCanceled)
		b.want("queued", b.d.Stats().Queued, 0)
		tun := &memTunnel{serve: k.serve}
		b.d.Attach(b.a, tun)
		time.Sleep(time.Minute)
		b.want("delivered", k.list(), "")
		tun.cutAll()
		tun.wg.Wait()
	}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
}
