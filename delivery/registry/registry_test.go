package registry

import (
	"strconv"
	"testing"
	"time"

	"relay"
)

// TestRegistryForgets: removed aliases leave no ids, labels or owners in the registry.
func TestRegistryForgets(t *testing.T) {
	r := New(Options{NewDispatcher: func(*Alias) Dispatcher { return nil }})
	for id := int64(1); id <= 4; id++ {
		r.put(&relay.Alias{ID: id, Name: string(rune('a' + id)), Owner: (id + 1) / 2})
	}
	r.remove(1)
	r.remove(1)
	if len(r.owners) != 2 || len(r.ids) != 3 || len(r.labels) != 3 {
		t.Errorf("%d owners, %d ids, %d labels", len(r.owners), len(r.ids), len(r.labels))
	}
	for id := range int64(5) {
		r.remove(id)
	}
	if len(r.owners)+len(r.ids)+len(r.labels) > 0 {
		t.Errorf("%d owners, %d ids, %d labels are left", len(r.owners), len(r.ids), len(r.labels))
	}
}

// TestRegistryRemovesManyAliases: removing 40,000 aliases of one owner takes at most 5 s. The owner stays
// until its last alias is removed, and a transferred alias counts for its new owner.
func TestRegistryRemovesManyAliases(t *testing.T) {
	const many = 40_000
	r := New(Options{NewDispatcher: func(*Alias) Dispatcher { return nil }})
	for id := range int64(many) {
		r.put(&relay.Alias{ID: id, Name: strconv.FormatInt(id, 36), Owner: 1})
	}
	r.put(&relay.Alias{ID: 0, Name: "handed-on", Owner: 2})
	began := time.Now()
	for id := int64(1); id < many-1; id++ {
		r.remove(id)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("removed within %v", took)
	}
	if r.owners[1] == nil {
		t.Error("the slots of an owner are gone before the last alias")
	}
	if r.remove(many - 1); r.owners[1] != nil || len(r.owners) != 1 || r.owners[2].aliases != 1 {
		t.Errorf("left: %v", r.owners)
	}
}

// TestNewAliasIsKnownBeforeItsTunnelIsRead: the registry asks for the tunnel of a new alias only after it has
// added the alias. A result for an alias that the registry does not have is dropped.
func TestNewAliasIsKnownBeforeItsTunnelIsRead(t *testing.T) {
	var r *Registry
	early := false
	r = New(Options{NewDispatcher: func(*Alias) Dispatcher {
		_, early = r.tunnels.reads.take()[7]
		return nil
	}})
	r.changed(&relay.Alias{ID: 7, Name: "seven", Owner: 1})
	if _, asked := r.tunnels.reads.take()[7]; early || !asked {
		t.Errorf("asked before it is known: %v, afterwards: %v", early, asked)
	}
}

// TestOutdatedAliasDoesNotTakeTheLabel: an outdated value of an alias changes neither the label of a newer
// alias nor the owner of a known one.
func TestOutdatedAliasDoesNotTakeTheLabel(t *testing.T) {
	r := New(Options{NewDispatcher: func(*Alias) Dispatcher { return nil }})
	old := &relay.Alias{ID: 1, Name: "hook", Owner: 1}
	r.put(old)
	r.remove(1)
	now := r.put(&relay.Alias{ID: 2, Name: "hook", Owner: 2})
	r.Find(old)
	if r.ByLabel("hook") != now {
		t.Error("the label is that of the removed alias")
	}
	// The registry calls remove when a read finds that the alias was removed.
	r.remove(1)
	if r.ByLabel("hook") != now {
		t.Error("the label is gone with the removed alias")
	}
	// This is a value from before a transfer of the alias.
	r.Find(&relay.Alias{ID: 2, Name: "hook", Owner: 1})
	if now.alias.Load().Owner != 2 {
		t.Error("an older value replaced the one that the registry has")
	}
	r.remove(2)
	if r.ByLabel("hook") != nil || len(r.owners) != 0 {
		t.Errorf("%v and %d owners are left", r.ByLabel("hook"), len(r.owners))
	}
	if next := r.put(&relay.Alias{ID: 3, Name: "hook", Owner: 1}); r.ByLabel("hook") != next {
		t.Error("a new alias does not get the label")
	}
}

// TestOutdatedRecordOfATunnel: a record of a tunnel is not applied if this node has changed the tunnel since
// the read began, or has a write that is not stored yet.
func TestOutdatedRecordOfATunnel(t *testing.T) {
	r := New(Options{
		NewDispatcher: func(*Alias) Dispatcher { return nil }, Store: thisNode{},
		Remote: func(relay.TunnelRecord) relay.RemoteTunnel { panic("an outdated record was applied") },
	})
	st := r.put(&relay.Alias{ID: 1, Name: "hook", Owner: 1})
	before := st.tunnelVersion
	st.tunnelVersion++
	r.applyTunnel(st, before, &relay.TunnelRecord{Alias: 1, Node: "other", State: relay.TunnelOnline}, time.Time{})
	r.tunnels.write(relay.TunnelWrite{TunnelRecord: relay.TunnelRecord{Alias: 1}})
	r.applyTunnel(st, st.tunnelVersion, &relay.TunnelRecord{Alias: 1, Node: "other", State: relay.TunnelOnline}, time.Time{})
	if st.tunnel() != nil {
		t.Error("the alias has the tunnel of the other node")
	}
}

type thisNode struct{ Store }

func (thisNode) NodeID() string { return "here" }

// TestAccountIsReadInAllItsAliases: after a change of an account, each of its aliases is read; if there are
// more than readAtOnce, all aliases are read together.
func TestAccountIsReadInAllItsAliases(t *testing.T) {
	for _, own := range []int64{0, 1, 3, readAtOnce, readAtOnce + 1} {
		r := New(Options{NewDispatcher: func(*Alias) Dispatcher { return nil }})
		r.put(&relay.Alias{ID: 1000, Name: "other", Owner: 2})
		for id := range own {
			r.put(&relay.Alias{ID: id + 1, Name: "own-" + strconv.FormatInt(id, 10), Owner: 1})
		}
		done, want := r.ReadAccountAgain(1), own
		if own > readAtOnce {
			want = 1
			if r.reloads.list[0] == nil {
				t.Error("they are not read together")
			}
		}
		if int64(len(done)) != want || r.reloads.list[1000] != nil {
			t.Errorf("of %d aliases, %d are read; of another account: %v", own, len(done), r.reloads.list[1000] != nil)
		}
	}
}
