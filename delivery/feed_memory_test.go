package delivery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
	"relay/record"
	"relay/store"
)

// TestFeedFromMemory: the last item of the feed about each event, and about its attempt, equals the item that is
// made from what the store has: for different responses, and for connections that end without a response.
func TestFeedFromMemory(t *testing.T) {
	b := realFixture(t)
	ctx, sys := context.Background(), relay.System()
	sub, err := b.d.Subscribe(ctx, sys, 0, "")
	must(t, err)
	defer sub.Close()
	answers := []func(l *local){
		func(l *local) { l.Write(ok) },
		// The event is stored before this response is sent.
		func(l *local) { time.Sleep(20 * time.Millisecond); l.Write(ok) },
		func(l *local) {
			time.Sleep(20 * time.Millisecond)
			l.Write("HTTP/1.1 500 Oh\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n")
		},
		func(*local) {}, // the connection ends without a response
		func(*local) { time.Sleep(20 * time.Millisecond) },
		func(l *local) {
			// This response is the error page of Django. The event is stored before it is sent.
			time.Sleep(60 * time.Millisecond)
			l.Write("HTTP/1.1 400 Bad Request\r\nContent-Length: 14\r\n\r\nDisallowedHost")
		},
	}
	ids := map[relay.ID]bool{}
	for _, answer := range answers {
		tun, _ := b.attach(func(l *local) {
			if l.until("\r\n\r\n") {
				answer(l)
			}
		})
		b.send(numbered(len(ids)))
		page, err := b.real.(*store.Store).Events(ctx, sys, relay.Filter{Limit: 1})
		must(t, err)
		ids[page.Events[0].ID] = true
		tun.cutAll()
		tun.wg.Wait()
	}
	if len(ids) != len(answers) {
		t.Fatalf("%d events of %d requests", len(ids), len(answers))
	}
	last := map[string]string{} // the data of the last item of each event, by the name of the item and the id of the event
	deadline, cancel := timeout(realWait)
	defer cancel()
	for ended := map[string]bool{}; len(ended) < len(answers); {
		items, err := sub.Next(deadline)
		must(t, err)
		for _, item := range items {
			var shown struct{ ID, EventID, State string }
			must(t, json.Unmarshal(item.Data, &shown))
			last[item.Name+" "+shown.ID+shown.EventID] = string(item.Data)
			if item.Name == "event" && shown.State != relay.StateDelivering {
				ended[shown.ID] = true // an event may come again after its end
			}
		}
	}
	list := make([]relay.ID, 0, len(ids))
	refs := make([]relay.AttemptRef, 0, len(ids))
	for id := range ids {
		list, refs = append(list, id), append(refs, relay.AttemptRef{Event: id, N: 1})
	}
	events, err := b.real.Summaries(ctx, list)
	must(t, err)
	heads, err := b.real.AttemptHeads(ctx, events[0].AliasID, refs)
	must(t, err)
	for i := range events {
		id := events[i].ID
		sameJSON(t, "event", last[fmt.Sprintf("event %s", id)], record.Summarise(&events[i], relay.Site{}, time.Now()))
		sameJSON(t, "attempt", last[fmt.Sprintf("attempt %s", id)], &record.AttemptMessage{
			EventID: id.String(), Alias: "hook", Event: record.Summarise(&events[i], relay.Site{}, time.Now()), Attempt: record.OfAttempt(heads[relay.AttemptRef{Event: id, N: 1}], false),
		})
	}
}

func sameJSON(t *testing.T, what, got string, want any) {
	t.Helper()
	text, err := json.Marshal(want)
	must(t, err)
	if d := cmp.Diff(string(text), got); d != "" {
		t.Errorf("%s (-read +feed):\n%s", what, d)
	}
}
