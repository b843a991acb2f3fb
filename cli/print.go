package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"relay/record"
)

// Front is the program in which a user types commands: relay, or a session of plain ssh.
type Front struct {
	// API returns the API that the commands call. A command closes the API when it ends.
	API func(ctx context.Context) (*API, error)
	// Printer returns the printer of data on stdout; Say prints messages on stderr.
	Printer func() *Printer
	Say     func(text string)
	// JSON reports whether another setting than --json asks for JSON; nil = no.
	JSON func() bool
	// NoAlias is the message for an account that has no alias yet.
	NoAlias string
	// Quoted maps an argument without its quotes to the argument as typed; nil if a shell has removed the
	// quotes.
	Quoted map[string]string
	// Secrets reads secrets of this machine; nil if commands do not run on the user's machine.
	Secrets *Secrets
	// Stdin is the user's standard input; nil = there is none.
	Stdin io.Reader
	// Edit opens a text in the user's editor and calls use with the edited text. If use fails, the text stays in
	// a file, and the hint of the error names the file. nil = there is no editor.
	Edit func(ctx context.Context, text []byte, use func(edited []byte) error) error
}

// Exit prints an error and returns its exit code.
func (f *Front) Exit(ctx context.Context, err error) int {
	var e *Error
	switch {
	case err == nil:
		return ExitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.As(err, &e):
		f.Say(e.Error())
		if e.Hint != "" {
			f.Say("hint: " + e.Hint)
		}
		return e.Exit
	}
	f.Say(err.Error())
	return ExitFailure
}

// Terminal describes the terminal of stdout.
type Terminal struct {
	Color   bool
	Columns int // 0 = unknown
}

// Printer writes data to stdout, escaped for a terminal.
type Printer struct {
	Out      io.Writer
	Terminal func() Terminal // nil = none
}

// Line writes one line and escapes its control characters.
func (w *Printer) Line(text string) error {
	_, err := io.WriteString(w.Out, record.SafeText(text)+"\n")
	return err
}

// tones are the colors of outcomes by the class of their status (ECMA-48, SGR): green, cyan, yellow
// for errors of the client, red for errors of the server.
var tones = [...]string{2: "32", 3: "36", 4: "33", 5: "31"}

// Lengths in characters: the longest method and path in a line, and the shortest path and cause in a line
// that is shortened to the window. If the shortened line is still too wide, it wraps.
const maxMethod, maxPath, minPath, minCause = 32, 512, 12, 24

// Event writes the line of an event or attempt. On a terminal, it shortens path and cause to the width of the
// window and colors the outcome.
func (w *Printer) Event(l record.Line) error {
	_, err := io.WriteString(w.Out, w.EventText(l)+"\n")
	return err
}

// EventText returns the line that Event writes, without the line end.
func (w *Printer) EventText(l record.Line) string {
	var t Terminal
	if w.Terminal != nil {
		t = w.Terminal()
	}
	path, cause := l.Path, l.Cause
	l.Method, l.Path = record.SafeTextMax(l.Method, maxMethod), "/"
	most := maxPath
	if width := t.Columns - 1; width > 0 { // some terminals wrap after the last column
		if l.Cause = ""; cause != "" {
			l.Cause = strings.Repeat(" ", min(utf8.RuneCountInString(cause), minCause))
		}
		most = min(most, max(minPath, width-utf8.RuneCountInString(l.String())+1))
		if l.Path = record.SafeTextMax(path, most); cause != "" {
			room := width - utf8.RuneCountInString(l.String()) + utf8.RuneCountInString(l.Cause)
			l.Cause = record.SafeTextMax(cause, max(minCause, room))
		}
	}
	l.Path = record.SafeTextMax(path, most)
	text, outcome := record.SafeText(l.String()), record.SafeText(l.Outcome())
	if l.Status < 200 || !t.Color {
		return text
	}
	return strings.Replace(text, outcome, "\x1b["+tones[min(l.Status/100, 5)]+"m"+outcome+"\x1b[0m", 1)
}

// Text writes several lines and escapes control characters, except for those in keep.
func (w *Printer) Text(s, keep string) error {
	b := bufio.NewWriterSize(w.Out, printedPiece)
	for l := range strings.Lines(s) {
		l = strings.TrimRight(l, "\r\n")
		for at := strings.IndexAny(l, keep); at >= 0; at = strings.IndexAny(l, keep) {
			_, _ = b.WriteString(record.SafeText(l[:at]) + l[at:at+1])
			l = l[at+1:]
		}
		if _, err := b.WriteString(record.SafeText(l) + "\n"); err != nil {
			return err
		}
	}
	return b.Flush()
}

// printedPiece is the number of bytes that are escaped and written at once.
const printedPiece = 32 << 10

// JSON writes one JSON value on one line.
func (w *Printer) JSON(raw []byte) error {
	line := bytes.TrimSpace(raw)
	if bytes.IndexByte(line, '\n') >= 0 { // most answers are one line already
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return fmt.Errorf("read the relay's answer: %w", err)
		}
		line = compact.Bytes()
	} else if !json.Valid(line) {
		return errors.New("read the relay's answer: it is no JSON")
	}
	b := bufio.NewWriterSize(w.Out, printedPiece)
	for len(line) > 0 {
		n := min(printedPiece, len(line))
		for n < len(line) && n > 1 && !utf8.RuneStart(line[n]) {
			n--
		}
		if _, err := b.WriteString(record.SafeJSON(line[:n])); err != nil {
			return err
		}
		line = line[n:]
	}
	_ = b.WriteByte('\n')
	return b.Flush()
}

// Object writes a value as JSON on a line of its own.
func (w *Printer) Object(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.JSON(raw)
}

// Question sends requests to the API and returns the answer. If there are several answers, it passes each to
// emit.
type Question func(ctx context.Context, api *API, args []string, emit func(json.RawMessage) error) (json.RawMessage, error)

// Calling returns the Question that sends one request. body returns nil for a request without a body.
func Calling(method string, path func(args []string) string, body func() any) Question {
	return func(ctx context.Context, api *API, args []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
		var sent any
		if body != nil {
			sent = body()
		}
		return api.Call(ctx, method, path(args), sent)
	}
}

// FlagJSON describes --json of most commands.
const FlagJSON = "print the JSON of the API; a stream is one object per line"

// nothingYet returns the message for an empty list of a command, or "" if the command has none.
func (f *Front) nothingYet(command string) string {
	switch command {
	case "aliases":
		return f.NoAlias
	case "events":
		return "no events were found" // there may be other events that the filter does not select
	case "list":
		return "there are none yet"
	}
	return ""
}

// Ask adds --json to a command that calls the API, and prints the answer: as JSON, or with show, which is
// called for each item of a list.
func Ask[T any](f *Front, c *cobra.Command, asked Question, show func(w *Printer, item *T) error) *cobra.Command {
	asJSON := c.Flags().Bool("json", false, FlagJSON)
	c.RunE = func(c *cobra.Command, args []string) error {
		api, err := f.API(c.Context())
		if err != nil {
			return err
		}
		defer api.Close()
		w, shown, inJSON := f.Printer(), 0, *asJSON || f.JSON != nil && f.JSON()
		emit := func(answer json.RawMessage) error {
			if inJSON {
				return w.JSON(answer)
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
		if answer != nil { // a failed replay returns an answer, too
			err = errors.Join(emit(answer), err)
		}
		if none := f.nothingYet(c.Name()); err == nil && shown == 0 && !inJSON && none != "" {
			f.Say(none)
		}
		return withHint(c, err)
	}
	return c
}

// withHint adds a hint to a not-found error: the command that lists the names that the user could have meant.
func withHint(c *cobra.Command, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Exit != ExitNotFound || e.Hint != "" {
		return err
	}
	switch name := c.Root().CommandPath(); c.Name() {
	case "events", "wait", "replay-queued", "list":
		return e.WithHint("%s aliases lists yours", name)
	case "add", "rm":
		return e.WithHint("check the names of alias and account; %s aliases lists your aliases", name)
	case "show", "diff", "replay", "mark", "share", "export", "verify":
		return e.WithHint("%s events ALIAS lists those of an alias", name)
	}
	return err
}

// items returns the items of a list, or the answer itself if it is not a list. Events are returned oldest
// first, like a stream, because the newest should be next to the prompt. The relay lists the newest first.
func items(answer json.RawMessage) []json.RawMessage {
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if json.Unmarshal(answer, &list) != nil || list.Data == nil {
		return []json.RawMessage{answer}
	}
	if n := len(list.Data); n > 1 && idOf(list.Data[0]) > idOf(list.Data[n-1]) {
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
