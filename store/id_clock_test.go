package store

import (
	"slices"
	"testing"
	"time"

	"relay"
)

// Events that arrive after the clock was set back still get later times and ids than earlier events.
// A list that starts at the time of such an event contains it.
func TestListSinceAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	s := figured(t, 0)
	if err := s.Serve(t.Context(), func([]relay.Change) {}); err != nil {
		t.Fatal(err)
	}
	alias, err := s.Alias(t.Context(), relay.System(), "hooks")
	if err != nil {
		t.Fatal(err)
	}
	capture := func() *relay.Event {
		t.Helper()
		e := &relay.Event{ReceivedAt: time.Now(), AliasID: alias.ID, Method: "POST", Target: []byte("/"), State: relay.StateRejected}
		e.ID = s.NewID()
		ticket := s.Accept(e)
		<-ticket.Done()
		if err := ticket.Err(); err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := capture()
	s.db.Clock.Offset.Store(int64(-5 * time.Hour)) // the clock of the store is set back
	last := capture()
	for last.ReceivedAt.Sub(first.ReceivedAt) < 20*time.Millisecond {
		last = capture()
	}
	page, err := s.Events(t.Context(), relay.System(), relay.Filter{Alias: "hooks", Since: last.ReceivedAt})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(page.Events, func(e relay.Event) bool { return e.ID == last.ID }) {
		t.Errorf("the event of %v has an id of %v, and is not in the list", last.ReceivedAt.UTC(), last.ID.Time().UTC())
	}
}
