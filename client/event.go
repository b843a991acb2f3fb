package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"relay"
	"relay/record"
)

const (
	defaultExport  = "curl"
	defaultShare   = "7d"
	shareForever   = "never"
	defaultTimeout = 30 * time.Second
	// maxQuestion is how long one request of a wait may last; the relay allows 60 s.
	maxQuestion = 55 * time.Second
	// overlap is how long before the end of a request the next one is sent.
	overlap = 5 * time.Second
	// maxAnswer bounds an answer that is held in memory.
	maxAnswer = 256 << 20
)

// Formats lists the export formats.
func Formats() []string { return []string{"curl", "har", "json", "go", "js", "python"} }

// ExportName returns the file name that relays give an export of an event. A text that
// is no event id is used unchanged.
func ExportName(id, format string) string {
	if parsed, err := relay.ParseID(id); err == nil {
		id = parsed.String()
	}
	switch format {
	case "har", "json":
		return id + "." + format
	case "go":
		return id + "_test.go"
	case "js":
		return id + ".test.js"
	case "python":
		return "test_" + id + ".py"
	}
	return id + ".sh"
}

func (a *API) share(ctx context.Context, c Command, out io.Writer) error {
	wish := struct {
		ExpiresIn *string `json:"expiresIn"`
		View      bool    `json:"view"`
	}{&c.Expires, c.View}
	switch c.Expires {
	case "":
		week := defaultShare
		wish.ExpiresIn = &week
	case shareForever:
		wish.ExpiresIn = nil
	}
	body, err := json.Marshal(wish)
	if err != nil {
		return err
	}
	return a.copy(ctx, http.MethodPost, "/events/"+url.PathEscape(c.Arg)+"/shares", body, out)
}

// export writes the text as the relay sent it, without another line end.
func (a *API) export(ctx context.Context, c Command, out io.Writer) error {
	format := c.Format
	if format == "" {
		format = defaultExport
	}
	path := "/events/" + url.PathEscape(c.Arg) + "/export?" + url.Values{"format": {format}}.Encode()
	resp, err := a.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return copyBounded(out, resp.Body)
}

// copyBounded copies an answer of bounded size.
func copyBounded(out io.Writer, from io.Reader) error {
	_, err := io.Copy(&limitedWriter{out: out, left: maxAnswer}, from)
	return err
}

// limitedWriter fails after a number of bytes.
type limitedWriter struct {
	out  io.Writer
	left int64
}

// Write passes p on.
func (b *limitedWriter) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, Errorf(ExitFailure, "the relay's answer is larger than %d MiB", maxAnswer>>20)
	}
	return b.out.Write(p)
}

// wait writes the first event that matches and arrives after the call.
func (a *API) wait(ctx context.Context, c Command, out io.Writer) error {
	left := c.Timeout
	if left <= 0 {
		left = defaultTimeout
	}
	query := url.Values{"alias": {c.Arg}}
	for key, value := range map[string]string{"path": c.Path, "method": c.Method} {
		if value != "" {
			query.Set(key, value)
		}
	}
	w := &waitLoop{api: a, query: query, end: time.Now().Add(left), answers: make(chan waitAnswer)}
	e, err := w.run(ctx, left > maxQuestion)
	if err != nil {
		return err
	}
	if e == nil {
		return Errorf(ExitFailure, "no such event came within %s", relay.FormatDuration(left))
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
		if err := a.get(ctx, "/events/"+url.PathEscape(id), &raw); err != nil {
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
	q := url.Values{"limit": {"200"}}
	for key, value := range query {
		q[key] = value
	}
	if wait > 0 {
		q.Set("wait", wait.Round(time.Millisecond).String())
	}
	var part page
	err := a.get(ctx, "/events?"+q.Encode(), &part)
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
