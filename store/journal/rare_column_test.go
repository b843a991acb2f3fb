package journal

import (
	"reflect"
	"testing"
	"time"

	"relay"
	"relay/store/events"
	"relay/store/spool"
)

// onlyNewEvents returns false for an event with a value in a rare column. The insert does not set that
// column, a second statement does, and relayd may be killed between the two: they need one transaction.
// The test sets each field of an event and of its attempt, so that every rare column has a value in some event.
func TestRareColumnsTakeATransaction(t *testing.T) {
	t.Parallel()
	seen := make([]bool, len(events.RareColumns))
	check := func(change func(*relay.Event, *relay.Attempt)) (alone bool) {
		rare := false
		a := relay.Attempt{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivered, Status: 200, ReceivedAt: time.Now()}
		e := &relay.Event{ID: relay.ID{1}, AliasID: 1, Host: "shop.localhost", Target: []byte("/"), State: relay.StateDelivered}
		change(e, &a)
		for i, column := range events.RareColumns {
			if column.Values(e, &a) != nil {
				seen[i], rare = true, true
			}
		}
		e.Attempts = []relay.Attempt{a}
		alone = onlyNewEvents(groupByEvent([]*step{{Step: spool.Step{Kind: spool.Accept, ID: e.ID, Event: e}}}))
		if alone && rare {
			t.Errorf("a rare column of this event is set outside a transaction: %+v", e)
		}
		return alone
	}
	if !check(func(*relay.Event, *relay.Attempt) {}) {
		t.Fatal("an event without rare columns takes a transaction")
	}
	for i := range reflect.TypeFor[relay.Event]().NumField() {
		check(func(e *relay.Event, _ *relay.Attempt) { set(reflect.ValueOf(e).Elem().Field(i)) })
	}
	for i := range reflect.TypeFor[relay.Attempt]().NumField() {
		check(func(_ *relay.Event, a *relay.Attempt) { set(reflect.ValueOf(a).Elem().Field(i)) })
	}
	check(func(_ *relay.Event, a *relay.Attempt) {
		a.Status, a.Response.Head = 301, []byte("HTTP/1.1 301 \r\nLocation: https://shop.localhost/\r\n\r\n")
	})
	for i, column := range events.RareColumns {
		if !seen[i] {
			t.Errorf("no event has a value for %s", column.Set.SQLite)
		}
	}
}

// set sets a field to a value that is not zero, if the field is a text, a flag or a pointer.
func set(field reflect.Value) {
	switch field.Kind() {
	case reflect.String:
		field.SetString("slack")
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
	}
}
