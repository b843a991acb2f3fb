package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

func (p *program) printer() *printer { return &printer{out: p.out, color: p.colored()} }

var statusInBrackets = regexp.MustCompile(`\[[1-5]\d\d\]`)

// line writes one line, escaped. The color is added after that: in the lines of this
// program the first status in brackets precedes all text of callers.
func (w *printer) line(text string) error {
	text = record.SafeText(text)
	if at := statusInBrackets.FindStringIndex(text); w.color && at != nil {
		text = text[:at[0]] + statusColor(text[at[0]+1]) + text[at[0]:at[1]] + "\x1b[0m" + text[at[1]:]
	}
	_, err := io.WriteString(w.out, text+"\n")
	return err
}

func statusColor(class byte) string {
	switch class {
	case '5':
		return "\x1b[31m"
	case '4':
		return "\x1b[33m"
	case '3':
		return "\x1b[36m"
	}
	return "\x1b[32m"
}

// text writes several lines, each escaped.
func (w *printer) text(s string) error {
	for l := range strings.Lines(s) {
		if _, err := io.WriteString(w.out, record.SafeText(strings.TrimRight(l, "\r\n"))+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// json writes one JSON value on one line.
func (w *printer) json(raw []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return err
	}
	_, err := io.WriteString(w.out, record.SafeJSON(line.Bytes())+"\n")
	return err
}

// question asks the API and writes JSON values to out as they arrive.
type question func(ctx context.Context, api *client.API, args []string, out io.Writer) error

// getting is the question that gets a path.
func getting(path func(args []string) string) question {
	return func(ctx context.Context, api *client.API, args []string, out io.Writer) error {
		return api.Call(ctx, http.MethodGet, path(args), nil, out)
	}
}

// ask adds --json to a command that asks the relay, and prints the answer: as
// JSON, or by show, which is called for each item of a list.
func (p *program) ask(c *cobra.Command, asked question, show func(w *printer, item json.RawMessage) error) *cobra.Command {
	asJSON := c.Flags().Bool("json", false, flagJSON)
	c.RunE = func(c *cobra.Command, args []string) error {
		api, err := p.api(c.Context())
		if err != nil {
			return err
		}
		defer api.Close()
		w, shown := p.printer(), 0
		take := func(raw json.RawMessage) error {
			return eachItem(raw, func(item json.RawMessage) error {
				shown++
				return show(w, item)
			})
		}
		inJSON := *asJSON || p.output == outputJSON
		if inJSON {
			take = func(raw json.RawMessage) error { return w.json(raw) }
		}
		from, to := io.Pipe()
		printed := make(chan error, 1)
		go func() {
			err := eachValue(from, take)
			from.CloseWithError(err)
			printed <- err
		}()
		err = withHint(c.Name(), asked(c.Context(), api, args, to))
		to.Close()
		printErr := <-printed
		var told *client.Error
		if !errors.As(err, &told) && printErr != nil {
			return printErr
		}
		if none := nothingYet[c.Name()]; err == nil && shown == 0 && !inJSON && none != "" {
			p.say(none)
		}
		return err
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
		return e.WithHint("%s", hintAliases)
	case "show", "diff", "replay", "mark", "share", "export":
		return e.WithHint("%s", hintEvents)
	}
	return err
}

// eachValue decodes JSON values until the end of r.
func eachValue(r io.Reader, take func(json.RawMessage) error) error {
	values := json.NewDecoder(r)
	for {
		var raw json.RawMessage
		err := values.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the relay's answer: %w", err)
		}
		if err := take(raw); err != nil {
			return err
		}
	}
}

// eachItem calls take for each item of a list, or for the value itself if it is no
// list.
func eachItem(raw json.RawMessage, take func(json.RawMessage) error) error {
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if len(raw) > 0 && raw[0] == '[' {
		if err := json.Unmarshal(raw, &list.Data); err != nil {
			return err
		}
	} else if err := json.Unmarshal(raw, &list); err != nil || list.Data == nil {
		return take(raw)
	}
	for _, item := range inOrder(list.Data) {
		if err := take(item); err != nil {
			return err
		}
	}
	return nil
}

// inOrder returns events with the newest last, next to the prompt, as a stream has
// them. Lists of the relay begin with the newest; ids are in order of arrival.
func inOrder(list []json.RawMessage) []json.RawMessage {
	id := func(raw json.RawMessage) string {
		var e struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal(raw, &e)
		return e.ID
	}
	if n := len(list); n > 1 && id(list[0]) > id(list[n-1]) {
		slices.Reverse(list)
	}
	return list
}

// decoded turns a function that shows a decoded item into one that shows JSON.
func decoded[T any](show func(w *printer, item *T) error) func(*printer, json.RawMessage) error {
	return func(w *printer, raw json.RawMessage) error {
		item := new(T)
		if err := json.Unmarshal(raw, item); err != nil {
			return fmt.Errorf("read the relay's answer: %w", err)
		}
		return show(w, item)
	}
}
