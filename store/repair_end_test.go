package store

import (
	"testing"
	"time"

	"relay"
)

func settle(t *testing.T, ticket *relay.Ticket) {
	t.Helper()
	if <-ticket.Done(); ticket.Err() != nil {
		t.Fatal(ticket.Err())
	}
}

func serveSQLite(t *testing.T) *Store {
	t.Helper()
	s := figured(t, 0)
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	return s
}

// An upgraded connection is delivered from the 101 on. When its second end cannot be
// written it stays so, with what was stored at the 101; one that was never ended does
// not.
func TestLostEndOfAnUpgrade(t *testing.T) {
	t.Parallel()
	s := serveSQLite(t)
	a, err := s.CreateAlias(t.Context(), relay.System(), "sockets", "alice")
	if err != nil {
		t.Fatal(err)
	}
	begin := func() (relay.ID, *relay.Attempt) {
		e := &relay.Event{
			ID: s.NewID(), AliasID: a.ID, ReceivedAt: time.Now(), State: relay.StateDelivering,
			Attempts: []relay.Attempt{{N: 1, State: relay.StateDelivering, ReceivedAt: time.Now()}},
		}
		settle(t, s.Accept(e))
		return e.ID, &relay.Attempt{
			N: 1, State: relay.StateDelivered, Status: 101, HasResponse: true, ResponseState: relay.ResponseUpgraded,
			EndedAt: time.Now(), Response: relay.Message{Head: []byte("HTTP/1.1 101 X\r\n\r\n")},
		}
	}
	upgraded, end := begin()
	settle(t, s.Finish(upgraded, end, ""))
	ended, end := begin()
	settle(t, s.enqueueStep(endLost(ended, end))) // the 101 itself could not be written
	if e, err := s.Event(t.Context(), relay.System(), ended, 0); err != nil || e.State != relay.StateInterrupted {
		t.Errorf("an attempt whose end was lost: %+v, %v", e, err)
	}
	<-s.enqueueStep(endLost(upgraded, end)).Done() // the end of the connection could not be
	e, err := s.Event(t.Context(), relay.System(), upgraded, 0)
	if err != nil || e.State != relay.StateDelivered || e.Status != 101 || e.Error != nil || !e.Attempts[0].HasResponse {
		t.Errorf("an upgrade whose second end was lost: %+v, %v", e, err)
	}
}
