package store

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/store/db"
)

// claimed claims the only attempt and returns the time of the claim.
func claimed(t *testing.T, s *Store, alias int64, id relay.ID) int64 {
	t.Helper()
	c, err := s.Next(relay.NextClaim{Alias: alias, Auto: true})
	if err != nil || c == nil || c.Event.ID != id {
		t.Fatalf("claimed %+v, %v", c, err)
	}
	return db.Micros(c.Event.Attempts[0].StartedAt)
}

// An attempt whose end could not be stored becomes interrupted when its process no longer runs it. If it came
// from the queue, it is also queued again. A running attempt is not changed.
func TestReconcile(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), figured(t, 0)
	var mu sync.Mutex // for running: the function given to SetRunning is also called by the server
	running := map[relay.AttemptRef]bool{}
	s.SetRunning(func() map[relay.AttemptRef]bool { mu.Lock(); defer mu.Unlock(); return maps.Clone(running) })
	runs := func(id relay.ID) {
		mu.Lock()
		defer mu.Unlock()
		running[relay.AttemptRef{Event: id, N: 1}] = true
	}
	if err := s.Serve(ctx, func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	alias, err := s.CreateAlias(ctx, relay.System(), "sockets", "alice")
	if err != nil {
		t.Fatal(err)
	}
	const ahead = 10 * time.Minute
	begin := func(state string) relay.ID {
		e := &relay.Event{
			ID: s.NewID(), AliasID: alias.ID, ReceivedAt: time.Now(), State: state,
			// The start is ahead of the clock, so that the reconciling loop of the server does not act on
			// the attempt during the test.
			Attempts: []relay.Attempt{{N: 1, State: state, ReceivedAt: time.Now(), StartedAt: time.Now().Add(ahead)}},
		}
		settle(t, s.Accept(e))
		return e.ID
	}
	want := func(id relay.ID, states ...string) {
		t.Helper()
		e, err := s.Event(ctx, relay.System(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range e.Attempts {
			got = append(got, a.State)
		}
		if !slices.Equal(got, states) {
			t.Errorf("attempts %v, want %v", got, states)
		}
	}
	lost, waited, replayed := begin(relay.StateDelivering), begin(relay.StateQueued), begin(relay.StateDelivering)
	settle(t, s.Finish(replayed, &relay.Attempt{N: 1, State: relay.StateDelivered, EndedAt: time.Now()}, ""))
	if _, err := s.BeginReplay(ctx, relay.System(), replayed, true); err != nil {
		t.Fatal(err)
	}
	upgraded, busy := begin(relay.StateDelivering), begin(relay.StateDelivering)
	settle(t, s.Finish(upgraded, &relay.Attempt{
		N: 1, State: relay.StateDelivered, Status: 101, HasResponse: true, ResponseState: relay.ResponseUpgraded,
		EndedAt: time.Now(), Response: relay.Message{Head: []byte("HTTP/1.1 101 X\r\n\r\n")},
	}, ""))
	claimed(t, s, alias.ID, waited)
	runs(busy)
	var last *relay.Ticket
	for range 1001 { // more running attempts than Reconcile reads at once
		e := &relay.Event{
			ID: s.NewID(), AliasID: alias.ID, ReceivedAt: time.Now(), State: relay.StateDelivering,
			Attempts: []relay.Attempt{{N: 1, State: relay.StateDelivering, ReceivedAt: time.Now(), StartedAt: time.Now().Add(-time.Second)}},
		}
		runs(e.ID)
		last = s.Accept(e)
	}
	settle(t, last)
	if err := s.Reconcile(ctx, time.Now().Add(-time.Minute)); err != nil { // all attempts were claimed after this time, so none may be changed
		t.Fatal(err)
	}
	want(lost, relay.StateDelivering)
	for range 2 {
		if err := s.Reconcile(ctx, time.Now().Add(2*ahead)); err != nil {
			t.Fatal(err)
		}
		want(lost, relay.StateInterrupted)
		want(waited, relay.StateInterrupted, relay.StateQueued)
		want(replayed, relay.StateDelivered, relay.StateInterrupted)
		want(upgraded, relay.StateDelivered)
		want(busy, relay.StateDelivering)
	}
}
