package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"

	"relay/cli"
	"relay/record"
)

const (
	// missedEvents is the number of events that are checked after a lost connection.
	missedEvents = 50
	// The check includes requests that arrived up to missedBefore before the loss, because they may have
	// ended after the loss.
	missedBefore = time.Minute
)

// readMissed posts a message for each request that has ended since the event stream of the API was lost.
// Requests that were queued in the meantime are delivered as soon as the tunnel is back, and may have ended
// before the event stream is back. query selects the same aliases as for the event stream.
func (t *tunnel) readMissed(ctx context.Context, query url.Values) {
	since := t.up.heard.Add(-missedBefore)
	if since.Before(t.up.followed) {
		since = t.up.followed
	}
	list := url.Values{"limit": {strconv.Itoa(missedEvents)}, "since": {since.UTC().Format(time.RFC3339Nano)}}
	if alias := query.Get("alias"); alias != "" {
		list.Set("alias", alias)
	}
	var page record.Page
	if err := t.api.Get(ctx, "/events?"+list.Encode(), &page); err != nil {
		t.post(ctx, &Message{Type: TypeMissed})
		return
	}
	incomplete := page.NextCursor != nil
	for _, s := range slices.Backward(page.Data) {
		if t.up.log.Has(s.ID, s.AttemptCount) {
			continue
		}
		var e record.Event
		if err := t.api.Get(ctx, "/events/"+s.ID, &e); err != nil {
			failed, known := errors.AsType[*cli.Error](err)
			incomplete = incomplete || !known || failed.Exit != cli.ExitNotFound // a removed event is not missing
			continue
		}
		for i := range e.Attempts {
			item, _ := json.Marshal(record.AttemptMessage{EventID: e.ID, Alias: e.Alias, Event: &e.Summary, Attempt: &e.Attempts[i]})
			t.logItem(ctx, "attempt", item)
		}
	}
	if incomplete {
		t.post(ctx, &Message{Type: TypeMissed})
	}
}

// logItem handles one item of the event stream. If the item is an attempt that has ended and was not shown
// before, logItem posts a message.
func (t *tunnel) logItem(ctx context.Context, name string, item []byte) {
	if e, a := t.up.log.Take(name, item); a != nil {
		t.post(ctx, &Message{Type: TypeRequest, item: bytes.Clone(item), Event: e, Attempt: a})
	}
}
