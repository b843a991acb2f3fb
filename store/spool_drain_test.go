package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"relay"
	"relay/store/pgtest"
)

// A batch of the spool goes over two connections, and the relay may be killed when one
// of them has committed: written again it changes nothing that is there, the steps of
// an event keep their order, and the queue is that of the arrivals.
func TestSpoolLanesAfterACrash(t *testing.T) {
	t.Parallel()
	for crashed := range drainWorkers {
		t.Run(fmt.Sprint("worker ", crashed), func(t *testing.T) {
			t.Parallel()
			s, alias := servedOnPostgres(t)
			steps, want := arrivals(s, alias, 60)
			d := drainer{s: s, limit: drainSteps, aliases: map[int64]bool{}, foreignEvents: map[relay.ID]bool{}}
			by := claimant{node: s.spoolID, boot: s.boot}
			var l drainWorker
			for _, st := range steps {
				if int(st.id[15])%drainWorkers == crashed {
					l.rows = append(l.rows, st)
				}
			}
			pen := &writeTarget{db: s.write, node: by.nodeID(), former: by.nodeID(), replaying: true}
			if l.write(t.Context(), s, pen); l.err != nil {
				t.Fatal(l.err)
			}
			for range 2 { // as after one crash, and after one more behind the end
				if _, err := d.write(t.Context(), drainBatch{steps: steps, from: &segment{claimant: by}}); err != nil {
					t.Fatal(err)
				}
			}
			for i, id := range want {
				if c := takeOut(t, s, alias); c == nil || c.Event.ID != id || len(c.Event.Attempts) != 1 {
					t.Fatalf("%d comes out of the queue as %+v", i, c)
				}
			}
			if c := takeOut(t, s, alias); c != nil {
				t.Errorf("one more: %+v", c)
			}
			page, err := s.Events(t.Context(), relay.System(), relay.Filter{State: relay.StateDelivered, Limit: 200})
			if err != nil || len(page.Events) != len(want)+len(want)/2 {
				t.Errorf("%d delivered, %v", len(page.Events), err)
			}
		})
	}
}

func servedOnPostgres(t *testing.T) (*Store, int64) {
	t.Helper()
	s, err := Open(t.Context(), Options{URL: pgtest.URL(t), DataDir: t.TempDir(), SpoolLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx := context.WithoutCancel(t.Context())
	_, _, err = s.Migrate(ctx)
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

// arrivals are the steps of n events that were put back to the queue, given by id in
// their order, and of half as many that were delivered; mixed as they came.
func arrivals(s *Store, alias int64, n int) (steps []*step, queue []relay.ID) {
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
			&step{kind: stepAccept, id: e.ID, event: e, ticket: relay.NewTicket()},
			&step{kind: stepRequeue, id: e.ID, n: 1, ticket: relay.NewTicket()})
		if i%2 == 0 {
			e := event()
			end := &relay.Attempt{N: 1, State: relay.StateDelivered, StartedAt: at, EndedAt: at, HasResponse: true, Status: 200}
			steps = append(steps, &step{kind: stepAccept, id: e.ID, event: e, ticket: relay.NewTicket()})
			defer func() {
				steps = append(steps, &step{kind: stepFinish, id: e.ID, n: 1, attempt: end, ticket: relay.NewTicket()})
			}()
		}
	}
	return steps, queue
}
