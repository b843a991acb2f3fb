package journal

import (
	"slices"
	"testing"
	"time"

	"relay"
	"relay/relaytest"
	"relay/store/spool"
)

// A batch of new events is stored although some or all of its steps are stored already, because the answer to
// their commit was lost.
func TestNewEventsAreWrittenTwice(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	now := time.Now()
	steps := func() []*step {
		e := &relay.Event{
			ID: s.NewID(), AliasID: alias, ReceivedAt: now, State: relay.StateDelivering,
			Request:  relay.Message{Head: []byte("POST / HTTP/1.1\r\n\r\n"), Body: relay.Body{State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, State: relay.StateDelivering, ReceivedAt: now, StartedAt: now}},
		}
		a := &relay.Attempt{N: 1, State: relay.StateDelivered, StartedAt: now, EndedAt: now, HasResponse: true, Status: 200}
		a.Response.Body = relay.Body{Data: []byte("answer"), Size: 6, State: relay.BodyComplete}
		return []*step{{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e}}, {Step: spool.Step{Kind: spool.Finish, ID: e.ID, N: 1, Attempt: a}}}
	}
	first, second := steps(), steps()
	batch := slices.Concat(first, second)
	for _, list := range [][]*step{first[:1], batch, batch} {
		changes, err := s.writeSteps(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		if len(changes) < len(list) {
			t.Errorf("%d changes after %d steps", len(changes), len(list))
		}
		for _, st := range list {
			if err := st.err; err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, st := range []*step{first[0], second[0]} {
		e, err := s.Event(t.Context(), relay.System(), st.ID, relay.InlineBody)
		if err != nil {
			t.Fatal(err)
		}
		if e.State != relay.StateDelivered || len(e.Attempts) != 1 || string(e.Attempts[0].Response.Body.Data) != "answer" {
			t.Errorf("%s: state %s, attempts %+v", st.ID, e.State, e.Attempts)
		}
	}
}

// A batch whose commit got no answer is written a second time. The second write returns the claim of the first
// one, and does not queue an attempt again that has left the queue.
func TestBatchIsWrittenTwice(t *testing.T) {
	t.Parallel()
	s, alias := servedOnPostgres(t)
	write := func(steps ...*step) {
		t.Helper()
		relaytest.Until(t, 15*time.Second, "the node to be allowed to claim", func() bool { return s.MayClaim() == nil })
		_, err := s.writeSteps(t.Context(), steps)
		if err != nil {
			t.Fatal(err)
		}
	}
	accept := func() *step {
		e := &relay.Event{
			ID: s.NewID(), AliasID: alias, ReceivedAt: time.Now(), State: relay.StateQueued,
			Request:  relay.Message{Body: relay.Body{State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, State: relay.StateQueued, ReceivedAt: time.Now()}},
		}
		return &step{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e}}
	}
	next := relay.NextClaim{Alias: alias, Auto: true}
	first, second := accept(), accept()
	write(first, second)
	claim := &step{Step: spool.Step{Kind: claimStep, ID: relay.ID{1}}, claim: &queueClaim{NextClaim: next}}
	for range 2 {
		write(claim)
		if got := claim.claim.got; got == nil || got.Event.ID != first.ID || got.Event.State != relay.StateDelivering || claim.err != nil {
			t.Fatalf("claimed %+v, %v", got, claim.err)
		}
	}
	end := &step{Step: spool.Step{Kind: spool.Finish, ID: first.ID, N: 1, Attempt: &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now()}}, claim: &queueClaim{NextClaim: next}}
	for range 2 {
		write(end)
		if got := end.claim.got; got == nil || got.Event.ID != second.ID || end.err != nil {
			t.Fatalf("claimed %+v with the end, %v", got, end.err)
		}
	}
	write(first, second)
	var queue, claims int
	err := s.db.Read.QueryRow(`SELECT (SELECT COUNT(*) FROM queue), (SELECT COUNT(*) FROM queue w JOIN attempts a USING (event_id, n)
		WHERE a.state = 1 AND a.from_queue = 1 AND a.claim_node = w.claim_node)`).Scan(&queue, &claims)
	if err != nil || queue != 1 || claims != 1 {
		t.Errorf("%d attempts are in the queue, %d of them under way (%v), want one", queue, claims, err)
	}
}
