package journal

import (
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"relay"
	"relay/store/spool"
)

// spoolWithoutDatabase opens a spool without a drainer.
func spoolWithoutDatabase(t testing.TB, dir string, limit int64) *spool.Spool {
	t.Helper()
	p := spool.New(spool.Options{
		Dir: dir, Database: "nowhere", Limit: limit, Log: slog.New(slog.DiscardHandler),
		Claimant: func() (string, string) { return "node_a/1", "node_a/1" },
	})
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func mustPut(t testing.TB, p *spool.Spool, steps []*step) {
	t.Helper()
	var kept []*spool.Step
	for _, st := range steps {
		kept = append(kept, &st.Step)
	}
	if _, _, err := p.Put(kept, sql.ErrConnDone); err != nil {
		t.Fatal(err)
	}
}

// freshStep returns the step of a new event with a body of the given size.
func freshStep(size int) *step {
	id := relay.ID{1}
	return &step{Step: spool.Step{Kind: spool.Accept, ID: id, Event: &relay.Event{
		ID: id, Request: relay.Message{Body: relay.Body{Data: make([]byte, size), Size: int64(size)}},
	}}}
}

// arrivals returns, in mixed order, the steps of n events that were put back into the queue and of n/2
// delivered events. It also returns the ids of the queued events in order.
func arrivals(s *fixture, alias int64, n int) (steps []*step, queue []relay.ID) {
	start := time.Now().Round(0)
	for i := range n {
		at := start.Add(time.Duration(i) * time.Millisecond)
		event := func() *relay.Event {
			return &relay.Event{
				ID: s.NewID(), AliasID: alias, ReceivedAt: at, State: relay.StateDelivering, Method: "POST", Target: []byte("/"),
				Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivering, ReceivedAt: at, StartedAt: at}},
			}
		}
		e := event()
		queue = append(queue, e.ID)
		steps = append(steps,
			&step{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e}, ticket: relay.NewTicket()},
			&step{Step: spool.Step{Kind: spool.Requeue, ID: e.ID, N: 1}, ticket: relay.NewTicket()})
		if i%2 == 0 {
			e := event()
			end := &relay.Attempt{N: 1, State: relay.StateDelivered, StartedAt: at, EndedAt: at, HasResponse: true, Status: 200}
			steps = append(steps, &step{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e}, ticket: relay.NewTicket()})
			defer func() {
				steps = append(steps, &step{Step: spool.Step{Kind: spool.Finish, ID: e.ID, N: 1, Attempt: end}, ticket: relay.NewTicket()})
			}()
		}
	}
	return steps, queue
}
