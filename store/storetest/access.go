package storetest

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// testAccess asks for alice's data as every kind of actor without rights to the data; each method
// must find nothing.
func testAccess(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	ctx := t.Context()
	id, waiting := b.capture(b.hooks, "/secret", "secret", 200), b.capture(b.hooks, "/waiting", "", 0)
	share, _, err := b.CreateShare(ctx, b.alice, id, relay.Share{})
	b.must(err)
	_, secret, err := b.CreateToken(ctx, b.bob, relay.Token{Alias: "other"})
	b.must(err)
	limited, err := b.TokenOwner(ctx, secret)
	b.must(err)
	_, err = b.CreateAlias(ctx, b.alice, "second", "")
	b.must(err)
	_, secret, err = b.CreateToken(ctx, b.alice, relay.Token{Alias: "second"})
	b.must(err)
	own, err := b.TokenOwner(ctx, secret)
	b.must(err)
	strangers := map[string]relay.Actor{
		"other account": b.bob, "admin": b.root, "token of another alias": limited, "own token of another alias": own,
		"nobody": {}, "queue": {Kind: relay.ActorQueue, Account: b.alice.Account},
		"share of another event": {Kind: relay.ActorShare, Account: b.alice.Account, Shared: waiting, Credential: share.ID},
	}
	for name, who := range strangers {
		for method, err := range b.everything(ctx, who, id, share.ID) {
			e := relay.AsError(err)
			if err == nil || e.Code != relay.CodeNotFound && e.Code != relay.CodeForbidden {
				t.Errorf("%s by %s: %v", method, name, err)
			}
		}
		if page := b.list(who, relay.Filter{}); len(page.Events) != 0 {
			t.Errorf("%s lists %d events", name, len(page.Events))
		}
	}
	b.wantEvent(id, relay.StateDelivered, relay.StateDelivered)
	b.wantEvent(waiting, relay.StateQueued, relay.StateQueued)
	if n, err := b.Release(ctx, own, "second"); n != 0 || err != nil {
		t.Errorf("a token cannot release its own alias: %d, %v", n, err)
	}
}

// testViewers checks AccountsOf, which reads the accounts that can see each of many aliases: the owner and
// the members.
func testViewers(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	ctx := t.Context()
	ids := []int64{b.hooks.ID, b.other.ID, 1 << 40}
	check := func(when string, want map[int64][]int64) {
		t.Helper()
		got, err := b.AccountsOf(ctx, ids)
		b.must(err)
		for _, accounts := range got {
			slices.Sort(accounts)
		}
		if !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	both := []int64{b.alice.Account, b.bob.Account}
	slices.Sort(both)
	check("owners", map[int64][]int64{b.hooks.ID: {b.alice.Account}, b.other.ID: {b.bob.Account}})
	b.must(b.AddMember(ctx, b.alice, "hooks", "bob"))
	check("a member", map[int64][]int64{b.hooks.ID: both, b.other.ID: {b.bob.Account}})
	b.must(b.RemoveMember(ctx, b.alice, "hooks", "bob"))
	b.must(b.RemoveAlias(ctx, b.bob, "other"))
	check("removed", map[int64][]int64{b.hooks.ID: {b.alice.Account}})
}

// everything calls each method of the store that concerns an alias or event, with who as the actor. All calls
// are about alice's alias hooks or about the event with the given id. It returns the errors by method.
func (b *fixture) everything(ctx context.Context, who relay.Actor, id relay.ID, share string) map[string]error {
	errs := map[string]error{
		"DeleteEvent":   b.DeleteEvent(ctx, who, id),
		"Cancel":        b.Cancel(ctx, who, id),
		"RemoveShare":   b.RemoveShare(ctx, who, id, share),
		"RemoveAlias":   b.RemoveAlias(ctx, who, "hooks"),
		"AddMember":     b.AddMember(ctx, who, "hooks", "bob"),
		"RemoveMember":  b.RemoveMember(ctx, who, "hooks", "bob"),
		"unknown event": b.DeleteEvent(ctx, who, relay.ID{1}),
	}
	_, errs["Event"] = b.Event(ctx, who, id, 10)
	_, errs["Events"] = b.Events(ctx, who, relay.Filter{Alias: "hooks"})
	_, errs["BeginReplay"] = b.BeginReplay(ctx, who, id, false)
	_, errs["Release"] = b.Release(ctx, who, "hooks")
	_, errs["Alias"] = b.Alias(ctx, who, "hooks")
	_, errs["ClaimAlias"] = b.ClaimAlias(ctx, who, "hooks")
	_, errs["SetAlias"] = b.SetAlias(ctx, who, "hooks", func(s *relay.Settings) error { s.Paused = true; return nil })
	_, errs["TransferAlias"] = b.TransferAlias(ctx, who, "hooks", "bob")
	_, errs["Members"] = b.Members(ctx, who, "hooks")
	_, _, errs["CreateShare"] = b.CreateShare(ctx, who, id, relay.Share{View: true})
	_, errs["Shares"] = b.Shares(ctx, who, id)
	return errs
}

// testFreshLogin checks that a session whose login was more than 15 minutes ago cannot remove keys or
// aliases, transfer an alias, or create a token with all rights. It can create a token that only reads
// events.
func testFreshLogin(t *testing.T, fresh func(testing.TB) store.Options) {
	var ahead atomic.Int64
	b := setup(t, fresh, func(o *store.Options) {
		o.Now = func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
	})
	ctx := t.Context()
	link, err := b.CreateLoginLink(ctx, relay.System(), "alice", time.Minute)
	b.must(err)
	secret, _, err := b.UseLoginLink(ctx, link, "127.0.0.1:1", "test")
	b.must(err)
	for _, after := range []struct {
		age  time.Duration
		code string
	}{{14 * time.Minute, relay.CodeNotFound}, {16 * time.Minute, relay.CodeLoginTooOld}} {
		ahead.Store(int64(after.age))
		who, err := b.SessionOwner(ctx, secret)
		b.must(err)
		b.want(after.code, b.RemoveKey(ctx, who, "key_none"))
		b.want(after.code, b.RemoveAlias(ctx, who, "none"))
		_, err = b.TransferAlias(ctx, who, "none", "bob")
		b.want(after.code, err)
	}
	who, err := b.SessionOwner(ctx, secret)
	b.must(err)
	_, _, err = b.CreateToken(ctx, who, relay.Token{Account: who.Account, Scopes: relay.AllScopes})
	b.want(relay.CodeLoginTooOld, err)
	_, _, err = b.CreateToken(ctx, who, relay.Token{Account: who.Account, Scopes: relay.ScopeEventsRead})
	b.must(err)
}

func testShares(t *testing.T, fresh func(testing.TB) store.Options) {
	var ahead atomic.Int64
	b := setup(t, fresh, func(o *store.Options) {
		o.Now = func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
	})
	ctx := t.Context()
	id := b.capture(b.hooks, "/shared", "", 200)
	b.shareOfOneEvent(id)
	b.shareForOneUse(id)

	_, brief, err := b.CreateShare(ctx, b.alice, id, relay.Share{ExpiresAt: time.Now().Add(time.Hour)})
	b.must(err)
	_, _, err = b.ShareActor(ctx, brief, false)
	b.must(err)
	ahead.Store(int64(2 * time.Hour))
	_, _, err = b.ShareActor(ctx, brief, false)
	b.want(relay.CodeNotFound, err)
	list, err := b.Shares(ctx, b.alice, id)
	if err != nil || len(list) != 1 {
		t.Errorf("shares %+v, %v", list, err)
	}
}

// shareOfOneEvent checks that a share gives access to its event alone, until it is removed.
func (b *fixture) shareOfOneEvent(id relay.ID) {
	ctx, t := b.Context(), b
	other := b.capture(b.hooks, "/not", "", 200)
	sh, secret, err := b.CreateShare(ctx, b.alice, id, relay.Share{View: true, ExpiresAt: time.Now().Add(time.Hour)})
	b.must(err)
	if len(secret) != 43 || sh.Event != id || !sh.View || sh.Uses != 0 || sh.ExpiresAt.IsZero() {
		t.Errorf("share %+v with %d characters", sh, len(secret))
	}
	who, _, err := b.ShareActor(ctx, secret, false)
	b.must(err)
	if who.String() != "share" || who.Shared != id || who.Account != b.alice.Account {
		t.Errorf("actor %+v", who)
	}
	_, used, err := b.ShareActor(ctx, secret, true)
	if err != nil || used.Uses != 1 {
		t.Errorf("used %+v, %v", used, err)
	}
	b.must(b.StillValid(ctx, who))
	_, err = b.Event(ctx, who, id, 0)
	b.must(err)
	_, err = b.Event(ctx, who, other, 0)
	b.want(relay.CodeNotFound, err)
	c, err := b.BeginReplay(ctx, who, id, false)
	if err != nil || c.Event.Attempts[0].Actor != "share" {
		t.Errorf("replay by a share: %+v, %v", c, err)
	}
	b.want(relay.CodeForbidden, b.DeleteEvent(ctx, who, id))
	b.want(relay.CodeNotFound, b.RemoveShare(ctx, b.alice, other, sh.ID))
	b.must(b.RemoveShare(ctx, b.alice, id, sh.ID))
	b.want(relay.CodeNotFound, b.RemoveShare(ctx, b.alice, id, sh.ID))
	for _, gone := range []string{secret, "", secret + "x"} {
		_, _, err = b.ShareActor(ctx, gone, true)
		b.want(relay.CodeNotFound, err)
	}
	_, err = b.Event(ctx, who, id, 0)
	b.want(relay.CodeNotFound, err)
	b.want(relay.CodeNotFound, b.StillValid(ctx, who))
}

// shareForOneUse checks that a share for one use ends with its use.
func (b *fixture) shareForOneUse(id relay.ID) {
	ctx, t := b.Context(), b
	once, onceSecret, err := b.CreateShare(ctx, b.alice, id, relay.Share{OneUse: true})
	if err != nil || !once.OneUse {
		t.Fatalf("share for one use %+v, %v", once, err)
	}
	who, _, err := b.ShareActor(ctx, onceSecret, true)
	b.must(err)
	_, err = b.BeginReplay(ctx, who, id, false) // ShareActor has used up the share, but its actor may still begin this replay
	b.must(err)
	for _, use := range []bool{false, true} {
		_, _, err = b.ShareActor(ctx, onceSecret, use)
		b.want(relay.CodeNotFound, err)
	}
	b.must(b.RemoveShare(ctx, b.alice, id, once.ID))
}
