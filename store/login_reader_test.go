package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"relay"
	"relay/store/db"
)

// Operations succeed although the feed accepts no change.
func TestOperationsDoNotWaitForTheFeed(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, Options{DataDir: t.TempDir()})
	stuck := make(chan struct{})
	s.SetFeed(func([]relay.Change) { <-stuck })
	t.Cleanup(func() { close(stuck) })
	if _, err := s.CreateAccount(t.Context(), relay.System(), "alice", false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateAlias(t.Context(), relay.System(), "hooks", "alice"); err != nil {
		t.Fatal(err)
	}
}

// A shutdown ends at its time limit with an error while the feed accepts no change. When the feed accepts
// changes again, Close completes the shutdown.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, Options{DataDir: t.TempDir()})
	stuck, taken := make(chan struct{}), make(chan struct{})
	s.SetFeed(func([]relay.Change) { close(taken); <-stuck })
	s.Publish([]relay.Change{{Kind: relay.ChangeMissed}})
	<-taken
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	close(stuck)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A timeout of a SQLite file is reported as overloaded, not as an unreachable database.
func TestSlowFileIsOverloaded(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, Options{DataDir: t.TempDir()})
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err := s.Events(ctx, relay.System(), relay.Filter{})
	if e := relay.AsError(err); e.Code != relay.CodeOverloaded || e.Detail == "" || errors.Unwrap(e) == nil {
		t.Errorf("got %v", err)
	}
	err = s.db.View(ctx, "look", func(q db.Query) error { return q.Get(new(int), `SELECT 1`) })
	if e := relay.AsError(err); e.Code != relay.CodeOverloaded || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// The listed operations are refused to a credential without their scope. The shares of an event are refused
// to members of its alias.
func TestReadsAskForScopes(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, Options{DataDir: t.TempDir()})
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	ctx, system := t.Context(), relay.System()
	actor := func(name string, scopes relay.Scope) relay.Actor {
		a, err := s.AccountByName(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return relay.Actor{Kind: relay.ActorToken, Account: a.ID, AccountName: name, Scopes: scopes}
	}
	for _, name := range []string{"alice", "bob"} {
		if _, err := s.CreateAccount(ctx, system, name, false); err != nil {
			t.Fatal(err)
		}
	}
	a, err := s.CreateAlias(ctx, system, "hooks", "alice")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddMember(ctx, system, "hooks", "bob"); err != nil {
		t.Fatal(err)
	}
	c := &testCluster{T: t, nodes: []*Store{s}, alias: a.ID}
	id := c.add(1, 10, time.Now(), relay.StateQueued)[0]
	for name, call := range map[string]struct {
		scope relay.Scope
		do    func(relay.Actor) error
	}{
		"keys":           {relay.ScopeAccount, func(who relay.Actor) error { _, err := s.Keys(ctx, who, ""); return err }},
		"tokens":         {relay.ScopeAccount, func(who relay.Actor) error { _, err := s.Tokens(ctx, who, ""); return err }},
		"sessions":       {relay.ScopeAccount, func(who relay.Actor) error { _, err := s.Sessions(ctx, who); return err }},
		"audit":          {relay.ScopeAccount, func(who relay.Actor) error { _, err := s.Audit(ctx, who, 1); return err }},
		"saved searches": {relay.ScopeEventsRead, func(who relay.Actor) error { _, err := s.SavedSearches(ctx, who, "hooks"); return err }},
		"save a search": {relay.ScopeEventsRead, func(who relay.Actor) error {
			return s.SaveSearch(ctx, who, "hooks", relay.SavedSearch{Name: "x", Words: "status:5xx"})
		}},
		"shares": {relay.ScopeEventsShare, func(who relay.Actor) error { _, err := s.Shares(ctx, who, id); return err }},
	} {
		if err := call.do(actor("alice", call.scope)); err != nil {
			t.Errorf("%s with the scope: %v", name, err)
		}
		if err := call.do(actor("alice", relay.AllScopes&^call.scope)); relay.AsError(err).Code != relay.CodeForbidden {
			t.Errorf("%s without the scope: %v", name, err)
		}
	}
	if _, err := s.Shares(ctx, actor("bob", relay.AllScopes), id); relay.AsError(err).Code != relay.CodeForbidden {
		t.Errorf("shares for a member: %v", err)
	}
}
