package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"relay"
	"relay/store/schematest"
)

func servedOnPostgres(t *testing.T) (*Store, int64) {
	t.Helper()
	s, err := Open(t.Context(), Options{URL: schematest.URL(t), DataDir: t.TempDir(), SpoolLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx := context.WithoutCancel(t.Context())
	_, _, err = s.db.Migrate(ctx)
	err = errors.Join(err, s.Serve(ctx, func([]relay.Change) {}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.CreateAccount(ctx, relay.System(), "alice", false)
	a, aliasErr := s.CreateAlias(ctx, relay.System(), "hooks", "alice")
	if err = errors.Join(err, aliasErr); err != nil {
		t.Fatal(err)
	}
	return s, a.ID
}

// While steps wait in the spool, no attempt is claimed or replayed and no event is deleted. A claim
// could overtake a waiting step, and a step that is written twice could restore a deleted event.
func TestNothingIsClaimedWhileStepsWait(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	ctx, who := t.Context(), relay.System()
	e := &relay.Event{
		ID: s.NewID(), AliasID: alias, Alias: "hooks", ReceivedAt: time.Now(), State: relay.StateQueued, Method: "POST", Target: []byte("/"),
		Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateQueued, ReceivedAt: time.Now()}},
	}
	settle(t, s.Accept(e))
	s.spool.Active.Store(true)
	_, nextErr := s.Next(relay.NextClaim{Alias: alias, Auto: true})
	_, replayErr := s.BeginReplay(ctx, who, e.ID, true)
	for what, err := range map[string]error{"Next": nextErr, "BeginReplay": replayErr, "DeleteEvent": s.DeleteEvent(ctx, who, e.ID)} {
		if err == nil || relay.AsError(err).Code != relay.CodeStoreUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.spool.Active.Store(false)
	maySoonClaim(t, s)
	if c, err := s.Next(relay.NextClaim{Alias: alias, Auto: true}); err != nil || c == nil || c.Event.ID != e.ID || c.N != 1 {
		t.Errorf("claimed %+v after the spool was empty, %v", c, err)
	}
}
