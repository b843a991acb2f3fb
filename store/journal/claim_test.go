package journal

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"relay"
	"relay/store/events"
	"relay/store/spool"
)

// If the commit of a claim got no answer, and the claim is in the database, its attempt is queued again. A later
// claim of the same attempt stays.
func TestLostClaim(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, alias := served(t, "")
	e := &relay.Event{
		ID: s.NewID(), AliasID: alias, ReceivedAt: time.Now(), State: relay.StateQueued,
		Attempts: []relay.Attempt{{N: 1, State: relay.StateQueued, ReceivedAt: time.Now()}},
	}
	settle(t, s.Accept(e))
	claim(t, s, alias, e.ID)
	s.dropClaim(&step{claim: &queueClaim{tried: true, oldest: events.AttemptRow{EventID: e.ID, N: 1}}})
	s.dropClaim(&step{claim: &queueClaim{oldest: events.AttemptRow{EventID: e.ID, N: 1}}}) // no transaction has tried this claim
	claim(t, s, alias, e.ID)
	if got, err := s.Event(ctx, relay.System(), e.ID, 0); err != nil || got.State != relay.StateDelivering || len(got.Attempts) != 1 {
		t.Fatalf("a later claim was taken back: %+v, %v", got, err)
	}
}

// claim claims the only queued attempt.
func claim(t *testing.T, s *fixture, alias int64, id relay.ID) {
	t.Helper()
	c, err := s.Next(relay.NextClaim{Alias: alias, Auto: true})
	if err != nil || c == nil || c.Event.ID != id {
		t.Fatalf("claimed %+v, %v", c, err)
	}
}

// A step with a claim that is refused at once returns its error, although dropping the claim enqueues a
// further step.
func TestRefusedStepReturnsItsClaim(t *testing.T) {
	t.Parallel()
	s, _ := served(t, "")
	c := s.committer.Load()
	c.mu.Lock()
	c.away, c.refusal = sql.ErrConnDone, spool.ErrCatchingUp
	c.mu.Unlock()
	st := &step{Step: spool.Step{Kind: claimStep}, claim: &queueClaim{tried: true, oldest: events.AttemptRow{EventID: s.NewID(), N: 1}}}
	if err := wait(s.enqueueStep(st)); !errors.Is(err, spool.ErrCatchingUp) {
		t.Errorf("got %v", err)
	}
}
