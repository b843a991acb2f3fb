package feed

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/delivery/changes"
	"relay/record"
)

// TestFeedForgetsWhatItLeftOut: the feed remembers at most unseenAliases aliases with changes that no viewer
// saw. Each such change has a new id.
func TestFeedForgetsWhatItLeftOut(t *testing.T) {
	f := New(Options{})
	for alias := range int64(3*unseenAliases + 5) {
		before := f.LastID()
		f.Put(relay.Change{Kind: relay.ChangeEvent, Alias: alias})
		if f.LastID() == before {
			t.Fatal("who comes back does not learn of a change that nobody saw")
		}
	}
	if len(f.unseen) > unseenAliases || len(f.waiting) > 0 {
		t.Errorf("%d aliases are remembered, %d wait", len(f.unseen), len(f.waiting))
	}
}

// TestManyChangesOfOneAliasLeaveRoomForOthers: after 5,000 changes of one alias, its viewer has to read
// again. The viewer of another alias still gets its single change.
func TestManyChangesOfOneAliasLeaveRoomForOthers(t *testing.T) {
	f := New(Options{})
	busy, quiet := newViewer(f, 1), newViewer(f, 2)
	snapshots := 0
	put := func(alias int64) {
		f.Put(relay.Change{Kind: relay.ChangeEvent, Alias: alias, Snapshot: func() (*relay.Event, *relay.Attempt) {
			snapshots++
			return nil, nil
		}})
	}
	for range 5000 {
		put(1)
	}
	put(2)
	if f.count != pendingItems+1 || snapshots != f.count || len(busy.pending) > 0 {
		t.Errorf("%d changes wait, %d were read, %d items wait", f.count, snapshots, len(busy.pending))
	}
	f.round(t.Context(), 1, f.take(1))
	if q := f.take(2); len(q.changes) != 1 || q.missed || !busy.behind || quiet.behind {
		t.Errorf("%d changes are told, of the busy alias again %v, of the other %v", len(q.changes), busy.behind, quiet.behind)
	}
}

// TestRoundsOfOneOwner: one owner gets at most half of the turns, so that another owner gets a turn at once.
func TestRoundsOfOneOwner(t *testing.T) {
	f := New(Options{})
	// With an ended context, Wait succeeds only if a turn is free.
	now, cancel := context.WithCancel(t.Context())
	cancel()
	for range roundsAtOnce / 2 {
		if _, err := f.turns.Wait(now, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.turns.Wait(now, 1); err == nil {
		t.Error("one owner has more than half of the rounds")
	}
	if _, err := f.turns.Wait(now, 2); err != nil {
		t.Errorf("another owner has none: %v", err)
	}
}

// TestChangesOfRightsAreBounded: after changes of 20,000 aliases and accounts, the number of waiting changes
// is bounded, and the last alias is still marked for a check of the rights.
func TestChangesOfRightsAreBounded(t *testing.T) {
	f := New(Options{})
	v := newViewer(f, 0)
	for i := range int64(20_000) {
		f.Put(relay.Change{Kind: relay.ChangeAlias, Alias: i + 1}, relay.Change{Kind: relay.ChangeAccount, Account: i + 1})
	}
	if f.count > waitingChanges {
		t.Errorf("%d changes wait", f.count)
	}
	if q := f.waiting[20_000]; !q.rights || !q.missed || v.changed != 0 {
		t.Errorf("of the last alias %+v, changes of the viewer's account %d", *q, v.changed)
	}
}

// stored is a store with one event; mu guards its counts.
type stored struct {
	changes.Store
	event relay.Event

	mu             sync.Mutex
	reading, worst int
}

func (s *stored) Summaries(ctx context.Context, _ []relay.ID) ([]relay.Event, error) {
	s.mu.Lock()
	s.reading++
	s.worst = max(s.worst, s.reading)
	s.mu.Unlock()
	// Tests with this store run in fake time.
	time.Sleep(time.Second)
	s.mu.Lock()
	s.reading--
	s.mu.Unlock()
	return []relay.Event{s.event}, ctx.Err()
}

func feedOf(s *stored) *Feed {
	return New(Options{
		Encoder: changes.Encoder{Store: s, Alias: func(int64) *relay.Alias { return nil }},
		Log:     slog.New(slog.DiscardHandler),
	})
}

// TestEventIsShownAsItsLastChangeLeftIt: if an event changes again after a change with a snapshot, the item of
// the event is read from the store.
func TestEventIsShownAsItsLastChangeLeftIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		event := relay.Event{AliasID: 1, AttemptCount: 1, State: relay.StateFailed}
		f := feedOf(&stored{event: relay.Event{AliasID: 1, AttemptCount: 2, State: relay.StateDelivered}})
		v := newViewer(f, 1)
		snapshot := func() (*relay.Event, *relay.Attempt) { return &event, &relay.Attempt{N: 1, State: relay.StateFailed} }
		f.Put(
			relay.Change{Kind: relay.ChangeEvent, Alias: 1, Snapshot: snapshot},
			relay.Change{Kind: relay.ChangeAttempt, Alias: 1, N: 1, Snapshot: snapshot},
			relay.Change{Kind: relay.ChangeEvent, Alias: 1},
		)
		f.round(t.Context(), 1, f.take(1))
		if n := len(v.pending); n != 2 {
			t.Fatalf("%d items", n)
		}
		var last record.Summary
		if err := json.Unmarshal(v.pending[1].Data, &last); err != nil || v.pending[1].Name != "event" || last.AttemptCount != 2 {
			t.Errorf("the event is shown as %s, %v", v.pending[1].Data, err)
		}
	})
}

// TestFewAliasesReadAtOnce: when 100 aliases change at the same time, the feed reads at most roundsAtOnce of
// them at once.
func TestFewAliasesReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const aliases = 100
		s := &stored{event: relay.Event{AliasID: 1}}
		f := feedOf(s)
		v := newViewer(f, 0)
		ctx, stop := context.WithCancel(t.Context())
		go f.Run(ctx)
		for alias := range int64(aliases) {
			f.Put(relay.Change{Kind: relay.ChangeEvent, Alias: alias + 1})
		}
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		if s.worst > roundsAtOnce {
			t.Errorf("%d aliases were read at once", s.worst)
		}
		if len(v.pending) != aliases && !v.behind {
			t.Errorf("the viewer has %d items and does not read again", len(v.pending))
		}
	})
}

// newViewer adds a viewer of an alias without reading the store.
func newViewer(f *Feed, alias int64) *viewer {
	v := &viewer{f: f, who: relay.System(), alias: alias, ready: make(chan struct{}, 1)}
	f.viewers[v] = true
	return v
}
