package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
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

// Events writes the newest n events that match a query of GET /events, as one page.
func (a *API) Events(ctx context.Context, query url.Values, n int, out io.Writer) error {
	all, err := a.list(ctx, query, n)
	if err != nil {
		return err
	}
	if all.Data == nil {
		all.Data = []json.RawMessage{}
	}
	return json.NewEncoder(out).Encode(all)
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

// Replay sends an event again and writes its record. The error of a failed attempt has no
// text: the record tells.
func (a *API) Replay(ctx context.Context, id string, out io.Writer) error {
	var answer bytes.Buffer
	if err := a.Call(ctx, http.MethodPost, "/events/"+url.PathEscape(id)+"/replay", nil, &answer); err != nil {
		return err
	}
	if _, err := out.Write(answer.Bytes()); err != nil {
		return err
	}
	var e record.Summary
	_ = json.Unmarshal(answer.Bytes(), &e) // the printer reports invalid JSON
	if e.State == relay.StateFailed || e.State == relay.StateInterrupted {
		return &Error{Exit: ExitFailure}
	}
	return nil
}

// Export returns an event in one of record.ExportFormats, and the name for its file.
func (a *API) Export(ctx context.Context, id, format string) (text []byte, name string, err error) {
	path := "/events/" + url.PathEscape(id) + "/export?" + url.Values{"format": {format}}.Encode()
	resp, err := a.request(ctx, http.MethodGet, path, nil, "")
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if _, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition")); err == nil {
		name = params["filename"]
	}
	var answer bytes.Buffer
	_, err = io.Copy(&limitedWriter{out: &answer, left: maxAnswer}, &answerReader{api: a, ctx: ctx, from: resp.Body})
	return answer.Bytes(), name, err
}

// errFound ends a Wait that has its event.
var errFound = errors.New("the event came")

// Wait writes the first event that matches a query of GET /events and arrives after the
// call, as soon as it has ended; it fails when none arrives in time. It follows the alias
// as Follow does, so an event is seen at once, and a lost connection misses none.
func (a *API) Wait(ctx context.Context, query url.Values, timeout time.Duration, out io.Writer) error {
	before, err := a.list(ctx, query, 1)
	if err != nil {
		return err
	}
	end := time.Now().Add(timeout)
	f := &follower{api: a, query: query, say: func(string) {}, known: map[string]seen{}, listed: true}
	if len(before.Data) > 0 {
		f.base = idOf(before.Data[0])
	}
	var id string
	f.out = writerFunc(func(line []byte) (int, error) {
		if id = idOf(line); id <= f.base { // an older event has changed
			return len(line), nil
		}
		return 0, errFound
	})
	waiting, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	switch err := f.run(waiting); {
	case errors.Is(err, errFound):
		return a.ended(ctx, id, end, out)
	case ctx.Err() == nil && waiting.Err() != nil:
		return Errorf(ExitFailure, "no such event came within %s", relay.FormatDuration(timeout))
	default:
		return err
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// ended writes the whole record of an event once the event has ended, or as it is when
// the time is up.
func (a *API) ended(ctx context.Context, id string, end time.Time, out io.Writer) error {
	pause := 20 * time.Millisecond
	for {
		var raw json.RawMessage
		if err := a.Get(ctx, "/events/"+url.PathEscape(id), &raw); err != nil {
			return err
		}
		var e record.Summary
		_ = json.Unmarshal(raw, &e) // the printer reports invalid JSON
		if e.State != relay.StateDelivering || time.Until(end) <= 0 {
			return writeLine(out, raw)
		}
		if !wait(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}
