package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"relay"
	"relay/record"
)

const (
	// pageLimit bounds the events of one list request.
	pageLimit = 200
	// maxQuestion is how long one request of a wait may last; the relay allows 60 s.
	maxQuestion = 55 * time.Second
	// overlap is how long before the end of a request the next one is sent.
	overlap = 5 * time.Second
)

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

// Wait writes the first event that matches a query of GET /events and arrives after the
// call, as soon as it has ended; it fails when none arrives in time.
func (a *API) Wait(ctx context.Context, query url.Values, timeout time.Duration, out io.Writer) error {
	w := &waitLoop{api: a, query: query, end: time.Now().Add(timeout), answers: make(chan waitAnswer)}
	e, err := w.run(ctx, timeout > maxQuestion)
	if err != nil {
		return err
	}
	if e == nil {
		return Errorf(ExitFailure, "no such event came within %s", relay.FormatDuration(timeout))
	}
	return a.ended(ctx, idOf(e), w.end, out)
}

// waitLoop is a wait in progress. Where one request may not last long enough, the next
// one is sent before it ends: one is always waiting, so an event is seen at once.
type waitLoop struct {
	api       *API
	query     url.Values
	end       time.Time
	answers   chan waitAnswer
	wg        sync.WaitGroup
	questions int    // questions
	newest    string // event before the wait, in a long one; ids are in order of arrival
}

type waitAnswer struct {
	events []json.RawMessage
	err    error
	early  time.Duration // before its time
}

// run returns the event, or nil when none arrived in time.
func (w *waitLoop) run(ctx context.Context, long bool) (e json.RawMessage, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer w.wg.Wait()
	defer cancel()
	if long {
		if w.newest, err = w.api.newest(ctx, w.query); err != nil {
			return nil, err
		}
	}
	lap := time.NewTicker(maxQuestion - overlap)
	defer lap.Stop()
	w.ask(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-lap.C:
			if time.Until(w.end) > overlap {
				w.ask(ctx)
			}
		case answer := <-w.answers:
			w.questions--
			e, done, err := w.questionEnded(ctx, answer, long)
			if done || err != nil {
				return e, err
			}
		}
	}
}

// ask sends a request that waits for as long as allowed.
func (w *waitLoop) ask(ctx context.Context) {
	w.questions++
	w.wg.Go(func() {
		began, limit := time.Now(), max(min(time.Until(w.end), maxQuestion), time.Millisecond)
		events, err := w.api.ask(ctx, w.query, limit)
		select {
		case w.answers <- waitAnswer{events, err, limit - time.Since(began)}:
		case <-ctx.Done():
		}
	})
}

// questionEnded handles the end of a request. When no other request waits, as with a
// relay that answers early, it looks for events that arrived meanwhile and asks again.
func (w *waitLoop) questionEnded(ctx context.Context, answer waitAnswer, long bool) (e json.RawMessage, done bool, err error) {
	if answer.err != nil {
		return nil, true, answer.err
	}
	if e = oldestAfter(answer.events, w.newest); e != nil {
		return e, true, nil
	}
	if w.questions > 0 {
		return nil, false, nil
	}
	if time.Until(w.end) <= 0 {
		return nil, true, nil
	}
	// Do not poll a relay that answers at once.
	if answer.early > 0 && !wait(ctx, min(answer.early, 250*time.Millisecond)) {
		return nil, true, ctx.Err()
	}
	w.ask(ctx)
	if long {
		events, err := w.api.ask(ctx, w.query, 0)
		e = oldestAfter(events, w.newest)
		return e, e != nil, err
	}
	return nil, false, nil
}

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

// ask lists the events that match; with a wait it returns those that arrived after the
// call.
func (a *API) ask(ctx context.Context, query url.Values, wait time.Duration) ([]json.RawMessage, error) {
	q := maps.Clone(query)
	q.Set("limit", strconv.Itoa(pageLimit))
	if wait > 0 {
		q.Set("wait", wait.Round(time.Millisecond).String())
	}
	var part page
	err := a.Get(ctx, "/events?"+q.Encode(), &part)
	return part.Data, err
}

func (a *API) newest(ctx context.Context, query url.Values) (string, error) {
	events, err := a.ask(ctx, query, 0)
	if err != nil || len(events) == 0 {
		return "", err
	}
	return idOf(events[0]), nil
}

// oldestAfter returns the oldest event of a list, newest first, that is newer than an
// id.
func oldestAfter(events []json.RawMessage, id string) json.RawMessage {
	for i := len(events) - 1; i >= 0; i-- {
		if idOf(events[i]) > id {
			return events[i]
		}
	}
	return nil
}
