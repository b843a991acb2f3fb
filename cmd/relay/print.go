package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"relay/client"
	"relay/record"
)

// printer writes data to stdout, escaped for a terminal.
type printer struct {
	out   io.Writer
	color bool
}

var statusInBrackets = regexp.MustCompile(`\[[1-5]\d\d\]`)

// statusColors are the colors of the classes of a status.
var statusColors = map[byte]string{'1': "\x1b[32m", '2': "\x1b[32m", '3': "\x1b[36m", '4': "\x1b[33m", '5': "\x1b[31m"}

// line writes one line, escaped. The color is added after that: in the lines of this
// program the first status in brackets precedes all text of callers.
func (w *printer) line(text string) error {
	text = record.SafeText(text)
	if at := statusInBrackets.FindStringIndex(text); w.color && at != nil {
		text = text[:at[0]] + statusColors[text[at[0]+1]] + text[at[0]:at[1]] + "\x1b[0m" + text[at[1]:]
	}
	_, err := io.WriteString(w.out, text+"\n")
	return err
}

// text writes several lines, each escaped but for the characters of keep.
func (w *printer) text(s, keep string) error {
	var b strings.Builder
	for l := range strings.Lines(s) {
		l = strings.TrimRight(l, "\r\n")
		for at := strings.IndexAny(l, keep); at >= 0; at = strings.IndexAny(l, keep) {
			b.WriteString(record.SafeText(l[:at]) + l[at:at+1])
			l = l[at+1:]
		}
		b.WriteString(record.SafeText(l) + "\n")
	}
	_, err := io.WriteString(w.out, b.String())
	return err
}

// json writes one JSON value on one line.
func (w *printer) json(raw []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return fmt.Errorf("read the relay's answer: %w", err)
	}
	_, err := io.WriteString(w.out, record.SafeJSON(line.Bytes())+"\n")
	return err
}

// object writes a value as JSON on a line of its own.
func (w *printer) object(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.json(raw)
}

// question asks the API and returns the answer; one that has several passes each to emit.
type question func(ctx context.Context, api *client.API, args []string, emit func(json.RawMessage) error) (json.RawMessage, error)

// calling is the question that sends one request, whose body may be nil.
func calling(method string, path func(args []string) string, body func() any) question {
	return func(ctx context.Context, api *client.API, args []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
		var sent any
		if body != nil {
			sent = body()
		}
		return api.Call(ctx, method, path(args), sent)
	}
}

// flagJSON describes --json of most commands.
const flagJSON = "print the JSON of the API; a stream is one object per line"

// nothingYet is said about an empty list.
var nothingYet = map[string]string{
	"aliases": "there are no aliases yet; relay up --port 3000 --alias NAME creates one",
	"events":  "no events were found", // there may be others, which the filter does not select
}

// ask adds --json to a command that asks the relay, and prints the answer: as
// JSON, or by show, which is called for each item of a list.
func ask[T any](p *program, c *cobra.Command, asked question, show func(w *printer, item *T) error) *cobra.Command {
	asJSON := c.Flags().Bool("json", false, flagJSON)
	c.RunE = func(c *cobra.Command, args []string) error {
		api, err := p.api(c.Context())
		if err != nil {
			return err
		}
		defer api.Close()
		w, shown, inJSON := p.printer(), 0, *asJSON || p.output == outputJSON
		emit := func(answer json.RawMessage) error {
			if inJSON {
				return w.json(answer)
			}
			for _, raw := range items(answer) {
				shown++
				item, err := decode[T](raw)
				if err == nil {
					err = show(w, item)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		answer, err := asked(c.Context(), api, args, emit)
		if answer != nil { // a failed replay has one too
			err = errors.Join(emit(answer), err)
		}
		if none := nothingYet[c.Name()]; err == nil && shown == 0 && !inJSON && none != "" {
			p.say(none)
		}
		return withHint(c.Name(), err)
	}
	return c
}

// withHint adds to a not-found error which command lists the names.
func withHint(command string, err error) error {
	var e *client.Error
	if !errors.As(err, &e) || e.Exit != client.ExitNotFound || e.Hint != "" {
		return err
	}
	switch command {
	case "events", "wait", "replay-queued":
		return e.WithHint("relay aliases lists yours")
	case "show", "diff", "replay", "mark", "share", "export":
		return e.WithHint("relay events ALIAS lists those of an alias")
	}
	return err
}

// items returns the items of a list, or the answer itself if it is no list. Events have the
// newest last, next to the prompt, as a stream has them: the relay's lists begin with the
// newest, and ids are in order of arrival.
func items(answer json.RawMessage) []json.RawMessage {
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if json.Unmarshal(answer, &list) != nil || list.Data == nil {
		return []json.RawMessage{answer}
	}
	id := func(raw json.RawMessage) string {
		var e struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal(raw, &e)
		return e.ID
	}
	if n := len(list.Data); n > 1 && id(list.Data[0]) > id(list.Data[n-1]) {
		slices.Reverse(list.Data)
	}
	return list.Data
}

// decode reads an item of an answer.
func decode[T any](raw json.RawMessage) (*T, error) {
	item := new(T)
	if err := json.Unmarshal(raw, item); err != nil {
		return nil, fmt.Errorf("read the relay's answer: %w", err)
	}
	return item, nil
}
