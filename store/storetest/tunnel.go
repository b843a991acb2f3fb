package storetest

import (
	"net/netip"
	"time"

	"relay"
)

// tunnels checks the stored tunnel of an alias after it is attached, changed, replaced, closed and detached.
func (b *fixture) tunnels() {
	ctx, t := b.Context(), b
	at := time.Now().UTC().Truncate(time.Microsecond)
	write := func(op relay.TunnelOp, id string) relay.TunnelWrite { return b.tunnelWrite(op, id, at) }
	store := func(w ...relay.TunnelWrite) {
		t.Helper()
		replaced, err := b.StoreTunnels(ctx, w)
		b.must(err)
		if len(replaced) > 0 {
			t.Errorf("replaced %+v of another node", replaced)
		}
	}
	has := func(id string) relay.TunnelRecord {
		t.Helper()
		got, err := b.TunnelsOf(ctx, []int64{b.hooks.ID, 1 << 40})
		b.must(err)
		if got[b.hooks.ID].ID != id {
			t.Errorf("the alias has the tunnel %q, want %q", got[b.hooks.ID].ID, id)
		}
		return got[b.hooks.ID]
	}
	gone := write(relay.TunnelAttach, "gone")
	gone.Alias = 1 << 40
	first := write(relay.TunnelAttach, "first")
	store(first, gone)
	want := first.TunnelRecord
	want.Node = b.NodeID()
	if got := has("first"); got != want {
		t.Errorf("the record is %+v, want %+v", got, want)
	}
	got, err := b.AliasByID(ctx, b.hooks.ID)
	if err != nil || !got.LastOnlineAt.Equal(at) {
		t.Errorf("touched %+v, %v", got, err)
	}
	b.must(b.AddRequests(ctx, map[string]int64{"first": 3, "unknown": 1}))
	stale := write(relay.TunnelKeep, "first")
	stale.State, stale.At = relay.TunnelStale, at.Add(time.Second)
	store(stale)
	if times, err := b.LastOnline(ctx, []int64{b.hooks.ID, 1 << 40}); err != nil || len(times) != 1 || !times[b.hooks.ID].Equal(stale.At) {
		t.Errorf("stale since %v, %v", times, err)
	}
	if got := has("first"); got.Requests != 3 || got.State != relay.TunnelStale {
		t.Errorf("the record is %+v", got)
	}
	store(write(relay.TunnelAttach, "second"))
	store(write(relay.TunnelKeep, "first"))
	store(write(relay.TunnelDetach, "first"))
	if got := has("second"); got.Requests != 0 || got.State != relay.TunnelOnline {
		t.Errorf("the new tunnel is %+v", got)
	}
	b.closeTunnel("second", b.alice)
	store(write(relay.TunnelAttach, "third"))
	b.closeTunnel("third", relay.System())
	store(write(relay.TunnelDetach, "third"))
	has("")
	store(write(relay.TunnelKeep, "third")) // other nodes delete the tunnels of a node that they declare dead; TunnelKeep stores this one again
	has("third")
}

// tunnelWrite returns a write of a tunnel of the alias hooks.
func (b *fixture) tunnelWrite(op relay.TunnelOp, id string, at time.Time) relay.TunnelWrite {
	return relay.TunnelWrite{Op: op, At: at, TunnelRecord: relay.TunnelRecord{
		TunnelInfo: relay.TunnelInfo{
			ID: id, Account: b.alice.Account, User: "alice", Client: "OpenSSH_9.2", Remote: netip.MustParseAddrPort("192.0.2.1:9"), Since: at,
			Target: "http://127.0.0.1:3000", HostHeader: "rewrite",
		},
		Alias: b.hooks.ID, LazyDial: true, State: relay.TunnelOnline,
	}}
}

// closeTunnel checks that an actor can see and close a tunnel, and can close it only once.
func (b *fixture) closeTunnel(id string, who relay.Actor) {
	ctx, t := b.Context(), b
	for _, c := range []struct {
		name string
		who  relay.Actor
		may  bool
	}{{"owner", b.alice, true}, {"stranger", b.bob, false}, {"operator", relay.System(), true}} {
		list, err := b.Tunnels(ctx, c.who)
		b.must(err)
		if seen := len(list) == 1 && list[0].ID == id && list[0].AliasName == b.hooks.Name; seen != c.may {
			t.Errorf("%s sees %+v", c.name, list)
		}
	}
	b.want(relay.CodeNotFound, b.CloseTunnel(ctx, b.bob, id))
	b.must(b.CloseTunnel(ctx, who, id))
	b.want(relay.CodeNotFound, b.CloseTunnel(ctx, who, id))
	b.want(relay.CodeNotFound, b.CloseTunnel(ctx, b.alice, "unknown"))
	got, err := b.TunnelsOf(ctx, []int64{b.hooks.ID})
	b.must(err)
	if got[b.hooks.ID].State != relay.TunnelClosing {
		t.Errorf("the tunnel is %s", got[b.hooks.ID].State)
	}
}
