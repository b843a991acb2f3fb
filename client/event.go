package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"relay"
	"relay/record"
)

const (
	defaultExport  = "curl"
	defaultShare   = "7d"
	shareForever   = "never"
	defaultTimeout = 30 * time.Second
	// longestAsk is how long one request of wait waits; the relay allows 60 s.
	longestAsk = 55 * time.Second
	// maxAnswer bounds what is read of one answer that is held in memory.
	maxAnswer = 256 << 20
)

// Formats are what an event can be exported as.
func Formats() []string { return []string{"curl", "har", "json", "go", "js", "python"} }

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

// export gives the text as the relay wrote it, without a line end of ours.
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

// copyBounded copies an answer that ends; one that does not is an error.
func copyBounded(out io.Writer, from io.Reader) error {
	_, err := io.Copy(&bounded{out: out, left: maxAnswer}, from)
	return err
}

// bounded takes so many bytes and then fails.
type bounded struct {
	out  io.Writer
	left int64
}

// Write passes p on.
func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, Errorf(ExitFailure, "the relay's answer is larger than %d MiB", maxAnswer>>20)
	}
	return b.out.Write(p)
}

// wait gives the first event that matches and arrives after the call. Where one
// request may not wait long enough it asks again; what arrived between two of them
// is found by its id, which is above that of the newest event before.
func (a *API) wait(ctx context.Context, c Command, out io.Writer) error {
	left := c.Timeout
	if left <= 0 {
		left = defaultTimeout
	}
	end := time.Now().Add(left)
	query := url.Values{"alias": {c.Arg}}
	for key, value := range map[string]string{"path": c.Path, "method": c.Method} {
		if value != "" {
			query.Set(key, value)
		}
	}
	newest := ""
	if left > longestAsk {
		var err error
		if newest, err = a.newest(ctx, query); err != nil {
			return err
		}
	}
	for {
		began, ask := time.Now(), max(min(time.Until(end), longestAsk), time.Millisecond)
		events, err := a.ask(ctx, query, ask)
		if err == nil && len(events) == 0 && left > longestAsk {
			events, err = a.ask(ctx, query, 0)
		}
		if err != nil {
			return err
		}
		if e := oldestAfter(events, newest); e != nil {
			return a.ended(ctx, idOf(e), end, out)
		}
		if time.Until(end) <= 0 {
			return Errorf(ExitFailure, "no such event came within %s", relay.FormatDuration(left))
		}
		// A relay that does not wait is not asked all the time.
		if early := ask - time.Since(began); early > 0 && !wait(ctx, min(early, 250*time.Millisecond)) {
			return ctx.Err()
		}
	}
}

// ended writes the whole record of an event once it has ended, or as it is when
// time is up.
func (a *API) ended(ctx context.Context, id string, end time.Time, out io.Writer) error {
	pause := 20 * time.Millisecond
	for {
		var raw json.RawMessage
		if err := a.get(ctx, "/events/"+url.PathEscape(id), &raw); err != nil {
			return err
		}
		var e record.Summary
		_ = json.Unmarshal(raw, &e) // whoever prints it finds what is wrong
		if e.State != relay.StateDelivering || time.Until(end) <= 0 {
			return writeLine(out, raw)
		}
		if !wait(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}

// ask lists what matches; with a time to wait it gives what arrived after the call.
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

// oldestAfter is the first of a list, newest first, that came behind an id.
func oldestAfter(events []json.RawMessage, id string) json.RawMessage {
	for i := len(events) - 1; i >= 0; i-- {
		if idOf(events[i]) > id {
			return events[i]
		}
	}
	return nil
}
