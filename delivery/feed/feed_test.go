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
	for alias := range f.left {
		f.miss(alias)
	}
	if len(changes) != 1 || changes[0].Alias != 2 || !isResync(busy.pending) || len(quiet.pending) > 0 {
		t.Errorf("%d changes are told, resync %v, of the other alias %d", len(changes), isResync(busy.pending), len(quiet.pending))
	}
}

// However many changes of rights come while a round reads for up to ten seconds, a bounded number
// waits. What is left out is told as one change of all, and the viewers of its aliases read again.
func TestChangesOfRightsAreBounded(t *testing.T) {
	f := New(Options{})
	v := &viewer{f: f, all: true, ready: make(chan struct{}, 1)}
	f.viewers[v] = true
	for i := range int64(20_000) {
		f.Put(relay.Change{Kind: relay.ChangeAlias, Alias: i + 1}, relay.Change{Kind: relay.ChangeAccount, Account: i + 1})
	}
	if len(f.changes) > roundChanges+2 {
		t.Errorf("%d changes wait", len(f.changes))
	}
	var all, any bool
	for _, c := range f.changes {
		any = any || c.Kind == relay.ChangeAccount && c.Account == 0
		all = all || c.Kind == relay.ChangeAlias && c.Alias == 0
	}
	if !all || !any || !f.left[20_000] {
		t.Errorf("rights of all aliases %v, of all accounts %v, of the last alias %v", all, any, f.left[20_000])
	}
}
