package storetest

import (
	"bytes"
	"strings"
	"testing"

	"relay"
	"relay/store"
)

// testCrash restarts a store with attempts in progress. Closing the store leaves them in the same
// state as a crash.
func testCrash(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	ctx := t.Context()
	live := b.newEvent(b.hooks, relay.StateDelivering, "/live", "")
	b.ok(b.Accept(live))
	waiting := b.capture(b.hooks, "/waiting", "", 0)
	taken := b.capture(b.other, "/taken", "", 0)
	_, err := b.Release(ctx, b.bob, "other")
	b.must(err)
	if c := b.nextOf(b.other, false); c == nil {
		t.Fatal("nothing is claimed")
	}
	replayed := b.capture(b.hooks, "/replayed", "", 200)
	_, err = b.BeginReplay(ctx, b.alice, replayed, true)
	b.must(err)
	last := b.NewID()
	ids := []relay.ID{live.ID, waiting, taken, replayed}

	unserved, err := store.Open(ctx, b.opt) // this store is not served, as if an operator command had opened it
	b.must(err)
	if have, want, err := unserved.Schema(ctx); have != want || err != nil {
		t.Errorf("schema %d of %d, %v", have, want, err)
	}
	if _, err := unserved.AccountByName(ctx, "alice"); err != nil {
		t.Error(err)
	}
	b.want(relay.CodeStoreUnavailable, b.done(unserved.Accept(live)))
	b.must(unserved.Close())

	b.reopen()
	for range 2 { // the second start must change nothing more
		got := b.wantEvent(live.ID, relay.StateInterrupted, relay.StateInterrupted)
		if e := got.Error; e == nil || e.Code != "interrupted" || !strings.Contains(e.Message, "stopped") {
			t.Errorf("interrupted event has error %+v", e)
		}
		b.wantEvent(waiting, relay.StateQueued, relay.StateQueued)
		b.wantEvent(taken, relay.StateQueued, relay.StateInterrupted, relay.StateQueued)
		b.wantEvent(replayed, relay.StateInterrupted, relay.StateDelivered, relay.StateInterrupted)
		b.want(relay.ErrFenced.Code, b.done(b.Finish(live.ID, ended(1, relay.StateDelivered, 200, ""), "")))
		b.reopen()
	}
	for _, id := range ids {
		if next := b.NewID(); bytes.Compare(next[:], id[:]) <= 0 || bytes.Compare(last[:], id[:]) <= 0 {
			t.Errorf("new id %s is not behind %s", next, id)
		}
	}
	if c := b.nextOf(b.other, false); c == nil || c.Event.ID != taken || c.N != 2 {
		t.Errorf("after the restart: %+v", c)
	}
	b.must(b.Close())
	if b.done(b.Accept(live)) == nil {
		t.Error("a closed store took a step")
	}
}
