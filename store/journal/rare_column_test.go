package journal

import (
	"testing"
	"time"

	"relay"
	"relay/store/events"
	"relay/store/spool"
)

// onlyNewEvents returns false for an event with a value in a rare column. The insert does not set that
// column, a second statement does, and relayd may be killed between the two: they need one transaction.
func TestRareColumnsTakeATransaction(t *testing.T) {
	t.Parallel()
	list := func(change func(*relay.Event, *relay.Attempt)) []*eventSteps {
		a := relay.Attempt{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivered, Status: 200, ReceivedAt: time.Now()}
		e := &relay.Event{ID: relay.ID{1}, AliasID: 1, Host: "shop.localhost", Target: []byte("/"), State: relay.StateDelivered}
		change(e, &a)
		e.Attempts = []relay.Attempt{a}
		return groupByEvent([]*step{{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e}}})
	}
	plain := list(func(*relay.Event, *relay.Attempt) {})
	if !onlyNewEvents(plain) {
		t.Fatal("an event without rare columns takes a transaction")
	}
	cases := []func(*relay.Event, *relay.Attempt){ // the cases are in the order of RareColumns
		func(e *relay.Event, _ *relay.Attempt) { e.Sent = &relay.Sent{} },
		func(e *relay.Event, _ *relay.Attempt) { e.Signature = &relay.Signature{} },
		func(e *relay.Event, _ *relay.Attempt) { e.MissedHandshake = "slack" },
		func(_ *relay.Event, a *relay.Attempt) { a.CallerGone = true },
		func(_ *relay.Event, a *relay.Attempt) {
			a.Status, a.Response.Head = 301, []byte("HTTP/1.1 301 \r\nLocation: https://shop.localhost/\r\n\r\n")
		},
	}
	if len(cases) != len(events.RareColumns) {
		t.Fatalf("%d cases for %d columns", len(cases), len(events.RareColumns))
	}
	for i, change := range cases {
		one := list(change)
		if onlyNewEvents(one) {
			t.Errorf("column %d is set outside a transaction", i)
		}
		values := events.RareColumns[i].Values
		if values(one[0].insert.event, one[0].insert.attempt) == nil || values(plain[0].insert.event, plain[0].insert.attempt) != nil {
			t.Errorf("column %d: wrong rows", i)
		}
	}
}
