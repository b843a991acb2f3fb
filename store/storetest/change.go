package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store"
)

// testChanges checks the changes that are published to the feed: the changes of this process, and those of
// operator commands beside it.
func testChanges(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	ctx := t.Context()
	e := b.newEvent(b.hooks, relay.StateDelivering, "/", "")
	b.ok(b.Accept(e))
	end := ended(1, relay.StateDelivered, 200, "")
	b.ok(b.Finish(e.ID, end, ""))
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
	// If the answer to a commit is lost, the store commits the end of the attempt again. The first commit may
	// not have been published, so the second one has to be.
	b.heardAfter(func() { b.ok(b.Finish(e.ID, end, "")) }, "ended, by a commit that was made twice", func(c relay.Change) bool {
		return c.Kind == relay.ChangeAttempt && c.Event == e.ID && c.N == 1 && c.Alias == b.hooks.ID
	})

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
	b.revokedBeside(beside)
	b.must(beside.RemoveAlias(ctx, system, "beside"))
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.changes {
		if c.Kind == relay.ChangeAlias && c.Alias == b.hooks.ID {
			return
		}
	}
	t.Error("a change of an alias of this process was not published")
}

// heardAfter calls the function do, and waits for a change for which the function fits returns true. Changes
// from before the call do not count.
func (b *fixture) heardAfter(do func(), what string, fits func(relay.Change) bool) {
	b.Helper()
	b.mu.Lock()
	before := b.changes
	b.changes = nil
	b.mu.Unlock()
	do()
	b.heard(what, fits)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes = append(before, b.changes...)
}

// revokedBeside revokes each kind of access in another process, and checks that this process publishes each
// revocation within 2 s.
func (b *fixture) revokedBeside(beside *store.Store) {
	b.Helper()
	ctx := b.Context()
	revoked := func(what string, account int64, revoke func() error) {
		b.Helper()
		var began time.Time
		b.heardAfter(func() {
			b.must(revoke())
			began = time.Now()
		}, what, func(c relay.Change) bool { return c.Kind == relay.ChangeAccount && c.Account == account })
		if took := time.Since(began); took > relaytest.Limit(2*time.Second, began) {
			b.Errorf("%s: published after %v", what, took)
		}
	}
	token, _, err := beside.CreateToken(ctx, b.bob, relay.Token{})
	b.must(err)
	revoked("token", b.bob.Account, func() error { return beside.RemoveToken(ctx, system, token.ID) })
	link, err := beside.CreateLoginLink(ctx, system, "bob", 0)
	b.must(err)
	_, _, err = beside.UseLoginLink(ctx, link, "192.0.2.1", "browser")
	b.must(err)
	sessions, err := beside.Sessions(ctx, b.bob)
	if err != nil || len(sessions) != 1 {
		b.Fatal(sessions, err)
	}
	revoked("session", b.bob.Account, func() error { return beside.RemoveSession(ctx, system, sessions[0].ID) })
	b.must(beside.AddMember(ctx, b.alice, "hooks", "bob"))
	revoked("member", b.bob.Account, func() error { return beside.RemoveMember(ctx, b.alice, "hooks", "bob") })
	event := b.capture(b.hooks, "/shared", "", 200)
	share, _, err := beside.CreateShare(ctx, b.alice, event, relay.Share{View: true})
	b.must(err)
	revoked("share", b.alice.Account, func() error { return beside.RemoveShare(ctx, b.alice, event, share.ID) })
	_, err = beside.CreateAccount(ctx, system, "erin", false)
	b.must(err)
	erin, err := beside.AccountByName(ctx, "erin")
	b.must(err)
	revoked("account", erin.ID, func() error { return beside.RemoveAccount(ctx, system, "erin") })
}

// testLoad stores the events of 64 concurrent senders. It checks that each event is stored unchanged, and
// that replays of one event are numbered without gaps.
func testLoad(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	const senders, each = 64, 4
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
	const replays = 8 // on a busy machine, more replays would wait too long for the only writer
	for range replays {
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
	states := make([]string, replays+1)
	for i := range states {
		states[i] = relay.StateDelivered
	}
	b.wantEvent(ids[0][0], relay.StateDelivered, states...)
	// A ticket is resolved a moment before its step counts as done.
	b.eventually("nothing is under way", func() bool { return b.Stats().QueuedSteps == 0 })
	if st := b.Stats(); st.Committed < 2*senders*each || st.Batches >= st.Committed {
		t.Errorf("stats %+v", st)
	}
	_, err := b.Health(t.Context())
	b.must(err)
}
