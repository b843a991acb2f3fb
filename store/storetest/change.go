package storetest

import (
	"fmt"
	"sync"
	"testing"

	"relay"
	"relay/store"
)

// testChanges checks what the feed is told, by this process and by operator
// commands beside it.
func testChanges(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	ctx := t.Context()
	e := b.newEvent(b.hooks, relay.StateDelivering, "/", "")
	b.ok(b.Accept(e))
	b.ok(b.Finish(e.ID, ended(1, relay.StateDelivered, 200, ""), ""))
	b.heard("captured", func(c relay.Change) bool {
		return c.Kind == relay.ChangeEvent && c.Event == e.ID && c.Alias == b.hooks.ID
	})
	b.heard("ended", func(c relay.Change) bool {
		return c.Kind == relay.ChangeAttempt && c.Event == e.ID && c.N == 1 && c.Alias == b.hooks.ID
	})
	queued := b.capture(b.hooks, "/q", "", 0)
	b.heard("queued", func(c relay.Change) bool { return c.Kind == relay.ChangeQueue && c.Alias == b.hooks.ID })
	b.must(b.Cancel(ctx, b.alice, queued))
	b.heard("canceled", func(c relay.Change) bool { return c.Kind == relay.ChangeAttempt && c.Event == queued })

	beside, err := store.Open(ctx, b.opt)
	b.must(err)
	defer func() { b.must(beside.Close()) }()
	a, err := beside.CreateAlias(ctx, system, "beside", "bob")
	b.must(err)
	b.heard("alias of another process", func(c relay.Change) bool { return c.Kind == relay.ChangeAlias && c.Alias == a.ID })
	k, err := beside.AddKey(ctx, system, "bob", "", b.ed25519())
	b.must(err)
	b.must(beside.RemoveKey(ctx, system, k.ID))
	b.heard("key revoked by another process", func(c relay.Change) bool {
		return c.Kind == relay.ChangeAccount && c.Account == b.bob.Account && c.Credential == k.ID
	})
	b.must(beside.RemoveAlias(ctx, system, "beside"))
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.changes {
		if c.Kind == relay.ChangeAlias && c.Alias == b.hooks.ID {
			return
		}
	}
	t.Error("an alias of this process was not told")
}

// testLoad: 64 senders hand over events at once; each keeps its own order, each
// event is stored as handed over, replays of one event are numbered without gaps.
func testLoad(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	const senders, each = 64, 10
	var wg sync.WaitGroup
	ids := make([][]relay.ID, senders)
	for i := range senders {
		wg.Go(func() {
			for j := range each {
				e := b.newEvent(b.hooks, relay.StateDelivering, fmt.Sprintf("/%d/%d", i, j), fmt.Sprint(i, j))
				accept := b.Accept(e)
				if j%2 == 0 {
					<-accept.Done()
				}
				finish := b.Finish(e.ID, ended(1, relay.StateDelivered, 200, fmt.Sprint(i, j)), "")
				<-finish.Done()
				if accept.Err() != nil || finish.Err() != nil {
					b.Error(accept.Err(), finish.Err())
				}
				ids[i] = append(ids[i], e.ID)
			}
		})
	}
	wg.Wait()
	for i := range ids {
		for j, id := range ids[i] {
			e := b.read(id)
			if want := fmt.Sprint(i, j); string(e.Request.Body.Data) != want || string(e.Attempts[0].Response.Body.Data) != want {
				t.Errorf("event %d of sender %d came back as %q and %q", j, i, e.Request.Body.Data, e.Attempts[0].Response.Body.Data)
			}
		}
	}
	for range 32 {
		wg.Go(func() {
			c, err := b.BeginReplay(t.Context(), b.alice, ids[0][0], true)
			if err != nil {
				b.Error(err)
				return
			}
			<-b.Finish(ids[0][0], ended(c.N, relay.StateDelivered, 200, ""), "").Done()
		})
	}
	wg.Wait()
	states := make([]string, 33)
	for i := range states {
		states[i] = relay.StateDelivered
	}
	b.wantEvent(ids[0][0], relay.StateDelivered, states...)
	if st := b.Stats(); st.Committed < 2*senders*each || st.QueuedSteps != 0 || st.Batches >= st.Committed {
		t.Errorf("stats %+v", st)
	}
	b.must(b.Ready(t.Context()))
}
