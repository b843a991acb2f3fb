package delivery_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"relay"
)

func contains(b []byte, s string) bool { return bytes.Contains(b, []byte(s)) }

// memStore is a store in memory. Its tickets resolve after the duration in the field delay.
type memStore struct {
	mu         sync.Mutex
	seq        uint64
	events     map[relay.ID]*relay.Event
	order      []relay.ID
	parts      map[partKey][]byte
	aliases    map[int64]*relay.Alias
	secrets    map[int64]relay.OpenSecrets
	touched    map[int64]int
	lastOnline map[int64]time.Time
	touches    int // calls of StoreTunnels
	tunnels    map[int64]relay.TunnelRecord
	requests   map[string]int64
	announced  []int64 // aliases given to AnnounceQueues
	takeovers  []string
	invalid    bool
	publish    func([]relay.Change)

	delay      time.Duration
	slowCounts bool             // QueueStats does not answer
	unchecked  bool             // Accept and Finish do not check that all parts are stored, as with the spool
	newest     *relay.Ticket    // ticket of the newest step, which keeps the steps in order
	failing    map[string]error // the error with which a step fails, by the name of the step
	accepts    int
	requeues   int
	amends     []relay.Message
	wg         sync.WaitGroup
	reads      int // calls of Summaries
	heads      int // attempts read by AttemptHeads
	headReads  int // calls of AttemptHeads
	// rightsReads counts the calls of Aliases and AccountsOf.
	rightsReads int
	unsettled   int // chunks that were passed to the store and have not resolved
	mostUnset   int
}

type partKey struct {
	id   relay.ID
	n, i int
}

func newStore(aliases ...*relay.Alias) *memStore {
	s := &memStore{
		events: map[relay.ID]*relay.Event{}, parts: map[partKey][]byte{}, aliases: map[int64]*relay.Alias{},
		tunnels: map[int64]relay.TunnelRecord{}, requests: map[string]int64{}, touched: map[int64]int{}, lastOnline: map[int64]time.Time{}, failing: map[string]error{},
	}
	for _, a := range aliases {
		s.aliases[a.ID] = a
	}
	return s
}

func (s *memStore) fail(step string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing[step] = err
}

// setDelay sets the delay of later steps.
func (s *memStore) setDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// step runs f after the delay and all earlier steps, publishes its changes and resolves the ticket. If a step
// with this name is set to fail, it does not call f.
func (s *memStore) step(name string, f func() ([]relay.Change, error)) *relay.Ticket {
	t := relay.NewTicket()
	run := func() {
		s.mu.Lock()
		err := s.failing[name]
		var changes []relay.Change
		if err == nil {
			changes, err = f()
		}
		publish := s.publish
		s.mu.Unlock()
		if publish != nil && len(changes) > 0 {
			publish(changes)
		}
		t.Resolve(err)
	}
	s.mu.Lock()
	delay := s.delay
	if delay == 0 {
		s.mu.Unlock()
		run()
		return t
	}
	s.wg.Add(1)
	before := s.newest
	s.newest = t
	s.mu.Unlock()
	time.AfterFunc(delay, func() {
		defer s.wg.Done()
		if before != nil {
			<-before.Done()
		}
		run()
	})
	return t
}

func (s *memStore) NewID() relay.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	var id relay.ID
	binary.BigEndian.PutUint64(id[8:], s.seq)
	id[6] = 0x70
	return id
}

func (s *memStore) Accept(e *relay.Event) *relay.Ticket {
	c := *e
	c.Attempts = slices.Clone(e.Attempts)
	return s.step("accept", func() ([]relay.Change, error) {
		s.accepts++
		for i := range c.Request.Body.Parts {
			if !s.unchecked && s.parts[partKey{c.ID, 0, i}] == nil {
				return nil, errors.New("part lost")
			}
		}
		s.events[c.ID] = &c
		s.order = append(s.order, c.ID)
		return []relay.Change{{Kind: relay.ChangeEvent, Alias: c.AliasID, Event: c.ID}}, nil
	})
}

func (s *memStore) Chunk(id relay.ID, n, i int, data []byte) *relay.Ticket {
	s.mu.Lock()
	s.unsettled++
	s.mostUnset = max(s.mostUnset, s.unsettled)
	s.mu.Unlock()
	return s.step("chunk", func() ([]relay.Change, error) {
		s.unsettled--
		s.parts[partKey{id, n, i}] = data
		return nil, nil
	})
}

func (s *memStore) attempt(id relay.ID, n int) (*relay.Event, *relay.Attempt) {
	e := s.events[id]
	if e == nil {
		return nil, nil
	}
	for i := range e.Attempts {
		if e.Attempts[i].N == n {
			return e, &e.Attempts[i]
		}
	}
	return e, nil
}

func (s *memStore) Finish(id relay.ID, a *relay.Attempt, event string) *relay.Ticket {
	end := *a
	return s.step("finish", func() ([]relay.Change, error) {
		e, had := s.attempt(id, end.N)
		if had == nil {
			return nil, relay.ErrNotFound
		}
		late := end.Error != nil && end.Error.Code == relay.CodeResponseNotStored
		if had.State != relay.StateDelivering && had.ResponseState != relay.ResponseUpgraded && !late {
			return nil, relay.ErrFenced
		}
		for i := range end.Response.Body.Parts {
			if !s.unchecked && s.parts[partKey{id, end.N, i}] == nil {
				return nil, errors.New("part lost")
			}
		}
		end.Kind, end.ReceivedAt, end.Actor, end.Released = had.Kind, had.ReceivedAt, had.Actor, had.Released
		*had = end
		e.State, e.Error = end.State, end.Error
		if event != "" {
			e.State = event
		}
		if end.State == relay.StateDelivered && end.Kind == relay.KindReplay {
			if _, first := s.attempt(id, 1); first.State == relay.StateQueued {
				first.State = relay.StateCanceled
				queue := relay.Change{Kind: relay.ChangeQueue, Alias: e.AliasID}
				return []relay.Change{queue, {Kind: relay.ChangeAttempt, Alias: e.AliasID, Event: id, N: end.N}}, nil
			}
		}
		return []relay.Change{{Kind: relay.ChangeAttempt, Alias: e.AliasID, Event: id, N: end.N}}, nil
	})
}

func (s *memStore) CallerGone(id relay.ID, n int) *relay.Ticket {
	return s.step("gone", func() ([]relay.Change, error) {
		e, a := s.attempt(id, n)
		if a == nil {
			return nil, relay.ErrNotFound
		}
		a.CallerGone = true
		return []relay.Change{{Kind: relay.ChangeAttempt, Alias: e.AliasID, Event: id, N: n}}, nil
	})
}

func (s *memStore) Amend(amended *relay.Event) *relay.Ticket {
	c := amended.Request
	return s.step("amend", func() ([]relay.Change, error) {
		s.amends = append(s.amends, c)
		if e := s.events[amended.ID]; e != nil {
			if e.Request = c; amended.Signature != nil {
				e.Signature = amended.Signature
			}
		}
		return nil, nil
	})
}

func (s *memStore) Requeue(id relay.ID, n int) *relay.Ticket { return s.requeue(id, n, false) }

func (s *memStore) RequeueWithheld(id relay.ID, n int) *relay.Ticket { return s.requeue(id, n, true) }

func (s *memStore) requeue(id relay.ID, n int, withhold bool) *relay.Ticket {
	return s.step("requeue", func() ([]relay.Change, error) {
		e, a := s.attempt(id, n)
		if a == nil || a.State != relay.StateDelivering {
			return nil, relay.ErrFenced
		}
		s.requeues++
		a.Released = a.Released && !withhold
		a.State, e.State = relay.StateQueued, relay.StateQueued
		return []relay.Change{{Kind: relay.ChangeQueue, Alias: e.AliasID}}, nil
	})
}

// change replaces the settings of an alias and publishes the change.
func (s *memStore) change(id int64, f func(*relay.Settings)) {
	s.mu.Lock()
	c := *s.aliases[id]
	f(&c.Settings)
	s.aliases[id] = &c
	s.mu.Unlock()
	s.publish([]relay.Change{{Kind: relay.ChangeAlias, Alias: id}})
}

// num returns a counter, read under the lock.
func (s *memStore) num(n *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *n
}

// only returns the only event of the store; nil if there is none or more than one.
func (s *memStore) only() *relay.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) != 1 {
		return nil
	}
	return copyOf(s.events[s.order[0]])
}

func (s *memStore) states() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, id := range s.order {
		out = append(out, s.events[id].State)
	}
	return strings.Join(out, " ")
}
