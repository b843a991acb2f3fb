package store

import (
	"context"
	"testing"

	"relay"
)

func settle(t *testing.T, ticket *relay.Ticket) {
	t.Helper()
	if <-ticket.Done(); ticket.Err() != nil {
		t.Fatal(ticket.Err())
	}
}

// A call with an Idempotency-Key whose end could not be written does not count as
// running for ever: its answer is kept once the database is back, and a call whose
// begin was not answered never was.
func TestLostEndOfACall(t *testing.T) {
	t.Parallel()
	ctx, who := context.Background(), relay.Actor{Credential: "tok_1"}
	s := figured(t, 0)
	s.spool = spoolWithoutDatabase(t, t.TempDir(), 1<<20) // it knows whether the database is away
	if err := s.Serve(ctx, func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	begin := func(key string) (int, string, error) {
		status, body, err := s.BeginIdempotent(ctx, who, key, "POST /a")
		return status, string(body), err
	}
	for _, key := range []string{"answered", "failed", "other"} {
		if status, _, err := begin(key); status != 0 || err != nil {
			t.Fatal(status, err)
		}
	}
	s.spool.Down.Store(true) // the database is away
	for key, status := range map[string]int{"answered": 202, "failed": 0} {
		if err := s.EndIdempotent(ctx, who, key, status, []byte("{}")); err == nil || relay.AsError(err).Code != relay.CodeStoreUnavailable {
			t.Fatal(err)
		}
	}
	if _, _, err := begin("answered"); err == nil || relay.AsError(err).Code != relay.CodeStoreUnavailable {
		t.Errorf("while the database is away: %v", err)
	}
	s.spool.Down.Store(false)
	if status, body, err := begin("answered"); status != 202 || body != "{}" || err != nil {
		t.Errorf("the same call: %d %q %v", status, body, err)
	}
	if status, _, err := begin("failed"); status != 0 || err != nil {
		t.Errorf("a call that failed, again: %d %v", status, err)
	}
	var at int64
	if err := s.db.Read.Get(&at, `SELECT created_at FROM idempotency WHERE key = 'other'`); err != nil {
		t.Fatal(err)
	}
	away := &relay.Error{Code: relay.CodeStoreUnavailable}
	s.lateEnds.note(callEnd{credential: who.Credential, key: "other", begun: at - 1}, away)
	if _, _, err := begin("other"); err == nil || relay.AsError(err).Code != relay.CodeConflict {
		t.Errorf("beside a call that runs: %v", err)
	}
	s.lateEnds.note(callEnd{credential: who.Credential, key: "other", begun: at}, away)
	if err := s.endLateCalls(ctx); err != nil || len(s.lateEnds.calls) > 0 {
		t.Errorf("%d ends wait still, %v", len(s.lateEnds.calls), err)
	}
	if status, _, err := begin("other"); status != 0 || err != nil {
		t.Errorf("a call whose begin was not answered, again: %d %v", status, err)
	}
}
