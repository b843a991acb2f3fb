package feed

import (
	"context"
	"testing"

	"relay"
)

// However many aliases come and go, the feed remembers of a bounded number that nobody saw a change.
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

// One alias with many requests filled the round of all others, whose viewers then read
// everything again, and each change beyond it was told to each viewer.
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

// However many aliases change while the goroutines that tell wait, a bounded number of changes does, and
// a change of who may see an alias is told of each.
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

// waitingStore has events of which several attempts wait.
type waitingStore struct{ Store }

func (waitingStore) Summaries(_ context.Context, ids []relay.ID) ([]relay.Event, error) {
	return []relay.Event{{ID: ids[0]}}, nil
}

func (waitingStore) AttemptHeads(_ context.Context, refs []relay.AttemptRef) (map[relay.AttemptRef]*relay.Attempt, error) {
	return map[relay.AttemptRef]*relay.Attempt{refs[0]: {N: refs[0].N, State: relay.StateQueued}}, nil
}

func (waitingStore) QueuePositions(_ context.Context, _ int64, refs []relay.AttemptRef) (map[relay.AttemptRef]int, error) {
	return map[relay.AttemptRef]int{refs[0]: 5, {Event: refs[0].Event, N: refs[0].N + 1}: 6}, nil
}

// The positions of one event's attempts come together, and the feed ended the whole process where it
// told one attempt while another one of the same event waited: two replays for a tunnel that is away.
func TestChangeOfOneOfManyWaitingAttempts(t *testing.T) {
	f := New(Options{Store: waitingStore{}})
	changes := []change{{Change: relay.Change{Kind: relay.ChangeAttempt, Alias: 1, Event: relay.ID{1}, N: 2}}}
	if err := f.read(t.Context(), 1, changes); err != nil || changes[0].attempt.Position != 5 {
		t.Errorf("position %d, %v", changes[0].attempt.Position, err)
	}
}

// newViewer adds a viewer of an alias that nothing has to be read for.
func newViewer(f *Feed, alias int64) *viewer {
	v := &viewer{f: f, who: relay.System(), alias: alias, ready: make(chan struct{}, 1)}
	f.viewers[v] = true
	return v
}
