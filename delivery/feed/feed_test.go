package feed

import (
	"testing"

	"relay"
)

// However many aliases come and go, the feed remembers of a bounded number that items
// were left out. Who was there before reads again, who had everything need not.
func TestFeedForgetsWhatItLeftOut(t *testing.T) {
	f := New(Options{})
	v := &viewer{f: f, all: true}
	for alias := range int64(3*missedAliases + 5) {
		f.Put(relay.Change{Kind: relay.ChangeEvent, Alias: alias})
		if alias == missedAliases-2 {
			if _, ok := f.since(f.id(f.seq-1), v); ok {
				t.Error("an item that was left out is not missed")
			}
		}
	}
	if len(f.missed) > missedAliases {
		t.Errorf("%d aliases are remembered", len(f.missed))
	}
	if _, ok := f.since(f.id(1), v); ok {
		t.Error("nobody can know what came since the first one")
	}
	if _, ok := f.since(f.id(f.seq), v); !ok {
		t.Error("one that had everything has to read again")
	}
}

// One alias with many requests filled the round of all others, whose viewers then read
// everything again, and each change beyond it was told to each viewer.
func TestManyChangesOfOneAliasLeaveRoomForOthers(t *testing.T) {
	f := New(Options{})
	busy, quiet := &viewer{f: f, all: true, alias: 1, ready: make(chan struct{}, 1)}, &viewer{f: f, all: true, alias: 2, ready: make(chan struct{}, 1)}
	f.viewers[busy], f.viewers[quiet] = true, true
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
	if len(f.changes) != pendingItems+1 || snapshots != len(f.changes) || len(busy.pending) > 0 {
		t.Errorf("%d changes wait, %d were read, %d items wait", len(f.changes), snapshots, len(busy.pending))
	}
	changes := leaveOut(coalesce(f.changes), f.left)
	f.deliver(nil, f.left)
	if len(changes) != 1 || changes[0].Alias != 2 || !isResync(busy.pending) || len(quiet.pending) > 0 {
		t.Errorf("%d changes are told, resync %v, of the other alias %d", len(changes), isResync(busy.pending), len(quiet.pending))
	}
}
