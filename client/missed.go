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
	// missedBefore is how long before the loss of a connection a request may have arrived that ended after
	// it.
	missedBefore = time.Minute
)

// readMissed posts a message for each request that has ended since the stream was lost. Requests that were
// queued in the meantime are delivered as soon as the tunnel is back, and may have ended before the stream is
// back. query selects the aliases, as for the stream.
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

// logItem posts a message for an item of the stream that is an ended attempt, unless the attempt was shown
// before.
func (t *tunnel) logItem(ctx context.Context, name string, item []byte) {
	if e, a := t.up.log.Take(name, item); a != nil {
		t.post(ctx, &Message{Type: TypeRequest, item: bytes.Clone(item), Event: e, Attempt: a})
	}
}
