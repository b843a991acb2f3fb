package cli

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"relay"
	"relay/record"
)

// pageLimit bounds the events of one list request.
const pageLimit = 200

// page is record.Page with its events unparsed, because a newer relay may send fields
// that this program does not know.
type page struct {
	Data           []json.RawMessage `json:"data"`
	NextCursor     *string           `json:"nextCursor"`
	SearchedBackTo json.RawMessage   `json:"searchedBackTo,omitempty"`
}

// Events returns the newest n events that match a query of GET /events, as one page.
func (a *API) Events(ctx context.Context, query url.Values, n int) (json.RawMessage, error) {
	all, err := a.list(ctx, query, n)
	if err != nil {
		return nil, err
	}
	if all.Data == nil {
		all.Data = []json.RawMessage{}
	}
	return json.Marshal(all)
}

// list returns up to n events, newest first.
func (a *API) list(ctx context.Context, query url.Values, n int) (page, error) {
	var all page
	query = maps.Clone(query)
	for {
		query.Set("limit", strconv.Itoa(min(n-len(all.Data), pageLimit)))
		var part page
		if err := a.Get(ctx, "/events?"+query.Encode(), &part); err != nil {
			return all, err
		}
		all.Data = append(all.Data, part.Data...)
		all.NextCursor, all.SearchedBackTo = part.NextCursor, part.SearchedBackTo
		if part.NextCursor == nil || len(all.Data) >= n {
			return all, nil
		}
		query.Set("cursor", *part.NextCursor)
	}
}

// Replay replays an event and returns its record. A failed attempt returns both the record and an error
// without text, because the record describes the failure.
func (a *API) Replay(ctx context.Context, id string) (json.RawMessage, error) {
	answer, err := a.Call(ctx, http.MethodPost, "/events/"+url.PathEscape(id)+"/replay", nil)
	if err != nil {
		return nil, err
	}
	var e record.Summary
	_ = json.Unmarshal(answer, &e) // the printer reports invalid JSON
	if e.State == relay.StateFailed || e.State == relay.StateInterrupted {
		err = &Error{Exit: ExitFailure}
	}
	return answer, err
}

// Export returns an event in one of record.ExportFormats, and the name for its file.
func (a *API) Export(ctx context.Context, id, format string) (text []byte, name string, err error) {
	path := "/events/" + url.PathEscape(id) + "/export?" + url.Values{"format": {format}}.Encode()
	resp, err := a.Request(ctx, http.MethodGet, path, nil, "")
	if err != nil {
		return nil, "", err
	}
	if _, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition")); err == nil {
		name = params["filename"]
	}
	text, err = a.read(ctx, resp)
	return text, name, err
}

// clockDifference is the largest difference between the clocks of nodes that Wait tolerates.
const clockDifference = time.Minute

// errFound ends a Wait that has found its event.
var errFound = errors.New("the event came")

// Wait waits for the first event that matches a query of GET /events and arrives after the call. It returns
// the event when its delivery has ended, or in its present state at the timeout. It fails if no event arrives
// in time. Like Follow, it reads the stream, and after a lost connection it reads the list.
func (a *API) Wait(ctx context.Context, query url.Values, timeout time.Duration) (json.RawMessage, error) {
	// The list is not filtered: an older event that does not match yet may match later, for example after a
	// successful replay.
	before, err := a.list(ctx, url.Values{"alias": query["alias"]}, 1)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(timeout)
	f := &follower{api: a, query: query, say: func(string) {}, known: map[string]seen{}, listed: true}
	if len(before.Data) > 0 {
		var newest record.Summary
		_ = json.Unmarshal(before.Data[0], &newest) // without an id or a time, Wait considers all events
		f.base = newest.ID
		if at := newest.ReceivedAt.Time; !at.IsZero() { // without a start, the search for a rare event would read the whole history
			f.since = at.Add(-clockDifference).UTC().Format(time.RFC3339Nano)
		}
	}
	var id string
	f.emit = func(event json.RawMessage) error {
		if id = idOf(event); id <= f.base { // the event came before the call
			return nil
		}
		return errFound
	}
	waiting, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if err := f.run(waiting); !errors.Is(err, errFound) {
		if ctx.Err() == nil && waiting.Err() != nil {
			late := Errorf(ExitFailure, "no such event came within %s", relay.FormatDuration(timeout))
			late.Code, err = relay.CodeRequestTimeout, late
		}
		return nil, err
	}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		raw, err := a.Call(ctx, http.MethodGet, "/events/"+url.PathEscape(id), nil)
		var e record.Summary
		_ = json.Unmarshal(raw, &e) // the printer reports invalid JSON
		again := e.State == relay.StateDelivering
		if err != nil {
			again = mayPass(err)
		}
		if !again || time.Until(end) <= 0 {
			return raw, err
		}
		if !Wait(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}
