package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/record"
)

// AddCommands adds the commands about aliases and events to root.
func (f *Front) AddCommands(root *cobra.Command) {
	AddGroup(root, "Look at events", f.events(), f.wait(), f.show(), f.diff(), f.verify(), f.export(), f.mark())
	AddGroup(root, "Send and replay", f.replay(), f.replayQueued(), f.send(), f.samples())
	AddGroup(root, "Aliases and sharing", f.aliases(), f.member(), f.secret(), f.share())
}

func (f *Front) aliases() *cobra.Command {
	c := &cobra.Command{Use: "aliases", Short: "list your aliases", Example: "  relay aliases\n  relay aliases --json", Args: Takes("", 0, 0)}
	return Ask(f, c, Calling(http.MethodGet, func([]string) string { return "/aliases" }, nil),
		func(w *Printer, a *record.Alias) error {
			line := fmt.Sprintf("%-20s %-8s %s", a.Name, a.State, a.URL)
			if a.QueuedEvents > 0 {
				line += "  " + record.Count(a.QueuedEvents, "event", "events") + " queued"
			}
			return w.Line(line)
		})
}

func (f *Front) replayQueued() *cobra.Command {
	c := &cobra.Command{
		Use: "replay-queued ALIAS", Short: "deliver the events that were queued while the alias was offline",
		Example: "  relay replay-queued stripe-dev", Args: Takes("alias", 1, 1),
	}
	path := func(args []string) string {
		return "/aliases/" + url.PathEscape(AliasLabel(NormalAlias(args[0]))) + "/replay-queued"
	}
	return Ask(f, c, Calling(http.MethodPost, path, nil), func(w *Printer, r *record.Released) error { return w.Line(ReleasedText(r)) })
}

// ReleasedText returns the message about the number of released events.
func ReleasedText(r *record.Released) string {
	if r.Released == 0 {
		return "no event of " + r.Alias + " was queued"
	}
	return "delivering " + record.Count(r.Released, "queued event", "queued events") + " of " + r.Alias + " while it is online"
}

// filterHelp is the end of the help of commands with a filter.
const filterHelp = `Filters are flags, or words after the alias: status:5xx, type:invoice.*, a field of the JSON
body of the request such as data.object.id=pi_1, and text to search for. Write
'"Exact Text"' to match letter case. An event must match all of them.`

func (f *Front) events() *cobra.Command {
	c := &cobra.Command{
		Use: "events ALIAS", Short: "list the newest events of an alias, the newest last",
		Long:    "List the newest events of an alias, the newest last.\n" + filterHelp,
		Example: "  relay events stripe-dev -n 50\n  relay events stripe-dev -f --json\n  relay events stripe-dev status:5xx type:invoice.* data.object.id=pi_1",
	}
	filter := f.addFilter(c)
	n := 20
	c.Flags().VarP((*Decimal)(&n), "count", "n", "how many, `N` is 1 to 200")
	follow := c.Flags().BoolP("follow", "f", false, "continue with new events")
	c.PreRunE = func(*cobra.Command, []string) error {
		if n < 1 || n > 200 {
			return Usage("-n is 1 to 200, not %d", n)
		}
		return nil
	}
	return Ask(f, c,
		func(ctx context.Context, api *API, _ []string, emit func(json.RawMessage) error) (json.RawMessage, error) {
			if *follow {
				return nil, api.Follow(ctx, filter.query, n, f.Say, emit)
			}
			return api.Events(ctx, filter.query, n)
		},
		func(w *Printer, e *record.Summary) error {
			if *follow && e.State == relay.StateDelivering {
				return nil // the event gets another line when the attempt has ended
			}
			line := record.EventLine(e)
			if *follow { // --follow prints lines in the order of changes, so the time of a line is ReceivedAt, which a replay sets anew
				line.Time = record.ZonedTime(e.ReceivedAt.Time)
			}
			return w.Event(line)
		})
}

// maxTimeout bounds --timeout of wait.
const maxTimeout = time.Hour

func (f *Front) wait() *cobra.Command {
	c := &cobra.Command{
		Use: "wait ALIAS", Short: "wait for the next event of an alias",
		Long: `Wait for the next event of an alias, print it when it has ended, and exit 0; exit 1 if none
arrives in time. Start it before the action that causes the event.
` + filterHelp,
		Example: `  relay wait stripe-dev --path /hook --timeout 30s --json
  relay wait stripe-dev status:2xx data.object.id=pi_1`,
	}
	filter := f.addFilter(c)
	timeout := c.Flags().String("timeout", "30s", "`DURATION` to wait, at most 1h")
	var limit time.Duration
	c.PreRunE = func(*cobra.Command, []string) (err error) {
		if limit, err = relay.ParseDuration(*timeout); err != nil || limit <= 0 || limit > maxTimeout {
			return Usage("--timeout is a duration above 0 such as 30s or 5m, at most 1h, not %q", *timeout)
		}
		return nil
	}
	return Ask(f, c,
		func(ctx context.Context, api *API, _ []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
			return api.Wait(ctx, filter.query, limit)
		},
		func(w *Printer, e *record.Summary) error { return w.Event(record.EventLine(e)) })
}

// eventPath returns a function that returns an API path: that of the event in the first argument, followed by
// the string below, such as "/replay".
func eventPath(below string) func(args []string) string {
	return func(args []string) string { return "/events/" + url.PathEscape(args[0]) + below }
}

func (f *Front) show() *cobra.Command {
	c := &cobra.Command{
		Use: "show ID", Short: "show an event with its request, responses and attempts",
		Long: `Show an event with its request, its first attempt and the newest 20. With --before N it shows
the attempts before N instead.` + eventHelp,
		Example: "  relay show evt_01k...\n  relay show evt_01k... --json\n  relay show evt_01k... --before 30", Args: Takes("event id", 1, 1),
	}
	before := 0
	c.Flags().Var((*Decimal)(&before), "before", "show attempts whose numbers are below `N`")
	path := func(args []string) string {
		if !c.Flags().Changed("before") {
			return eventPath("")(args)
		}
		return eventPath("/attempts?limit=20&before=" + strconv.Itoa(before))(args)
	}
	return Ask(f, c, f.ofEvents(Calling(http.MethodGet, path, nil)), func(w *Printer, raw *json.RawMessage) error {
		if c.Flags().Changed("before") {
			a, err := decode[record.Attempt](*raw)
			if err != nil {
				return err
			}
			return w.Text(record.AttemptText(a), "")
		}
		e, err := decode[record.Event](*raw)
		if err != nil {
			return err
		}
		return w.Text(record.EventText(e), "")
	})
}

func (f *Front) diff() *cobra.Command {
	c := &cobra.Command{
		Use: "diff A B", Short: "show what changed between two attempts, or two events",
		Long: `Show what changed between the responses of two attempts, such as evt_01k.../1 and
evt_01k.../2, or between the requests of two events.` + eventHelp,
		Example: `  relay diff evt_01k.../1 evt_01k.../2
  relay diff evt_01k... evt_01m... --json`,
		Args: Takes("event ids", 2, 2),
	}
	part := c.Flags().String("part", "", "`PART` to compare: request or response (default: response if an attempt is named, else request)")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *part != "" && *part != record.DiffRequest && *part != record.DiffResponse {
			return Usage("--part is request or response, not %q", *part)
		}
		return nil
	}
	path := func(args []string) string {
		query := url.Values{"left": args[:1], "right": args[1:]}
		if *part != "" {
			query.Set("part", *part)
		}
		return "/diff?" + query.Encode()
	}
	return Ask(f, c, f.ofEvents(Calling(http.MethodGet, path, nil)), func(w *Printer, d *record.Diff) error { return w.Text(record.DiffLines(d), "") })
}

func (f *Front) replay() *cobra.Command {
	c := &cobra.Command{
		Use: "replay ID", Short: "send an event to your server again, byte for byte, and compare",
		Long: `Send an event again, byte for byte, through the open tunnel of its alias, and compare the response
with that of the previous attempt.` + eventHelp,
		Example: "  relay replay evt_01k...\n  relay replay stripe-dev", Args: Takes("event id", 1, 1),
	}
	compared := ""
	return Ask(f, c,
		f.ofEvents(func(ctx context.Context, api *API, args []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
			answer, err := api.Replay(ctx, args[0])
			if answer != nil && !c.Flags().Changed("json") {
				compared = api.compare(ctx, answer)
			}
			return answer, err
		}),
		func(w *Printer, e *record.Event) error {
			defer func() {
				for _, warning := range e.Warnings {
					f.Say("warning: " + warning.Message)
				}
			}()
			if len(e.Attempts) == 0 {
				return w.Event(record.EventLine(&e.Summary))
			}
			switch last := &e.Attempts[len(e.Attempts)-1]; last.State { // the last attempt is the replay
			case relay.StateQueued:
				return w.Line(e.ID + " is queued: its alias is offline")
			case relay.StateDelivering:
				return w.Line(e.ID + " is " + last.State)
			default:
				err := w.Event(record.AttemptLine(&e.Summary, last))
				if compared != "" {
					err = errors.Join(err, w.Line(compared))
				}
				return err
			}
		})
}

// compare returns a line that compares the response of an event's last attempt with that of the previous
// attempt with a response; "" if there are not two responses.
func (a *API) compare(ctx context.Context, event json.RawMessage) string {
	var e record.Event
	_ = json.Unmarshal(event, &e) // the printer reports invalid JSON
	var answered []int
	for _, attempt := range e.Attempts {
		if attempt.Response != nil {
			answered = append(answered, attempt.Number)
		}
	}
	n := len(answered)
	if n < 2 || answered[n-1] != e.Attempts[len(e.Attempts)-1].Number {
		return ""
	}
	query := url.Values{"part": {record.DiffResponse}}
	query.Set("left", fmt.Sprintf("%s/%d", e.ID, answered[n-2]))
	query.Set("right", fmt.Sprintf("%s/%d", e.ID, answered[n-1]))
	var d record.Diff
	if a.Get(ctx, "/diff?"+query.Encode(), &d) != nil {
		return ""
	}
	return fmt.Sprintf("compared with attempt %d: %s", answered[n-2], d.Headline)
}

func (f *Front) mark() *cobra.Command {
	c := &cobra.Command{
		Use: "mark ID", Short: "pin, label or annotate an event",
		Long: `Pin an event, so that retention does not delete it, or give it a note, or a label to find it
by (label:bug-17). An empty label or note removes it. Only the owner of the alias can do this.` + eventHelp,
		Example: `  relay mark evt_01k... --pinned --label bug-17
  relay mark evt_01k... --note "the customer has no name"
  relay mark evt_01k... --pinned=false --label ""`,
		Args: Takes("event id", 1, 1),
	}
	values := map[string]any{
		"pinned": c.Flags().Bool("pinned", false, "pin the event, so that retention does not delete it; --pinned=false unpins it"),
		"label":  c.Flags().String("label", "", "`TEXT` of the label"),
		"note":   c.Flags().String("note", "", "`TEXT` of the note"),
	}
	changes := map[string]any{}
	c.PreRunE = func(*cobra.Command, []string) error {
		for name, value := range values {
			if c.Flags().Changed(name) {
				changes[name] = value
			}
		}
		if len(changes) == 0 {
			return Usage("%s needs --pinned, --label or --note", c.CommandPath())
		}
		return nil
	}
	return Ask(f, c, f.ofEvents(Calling(http.MethodPatch, eventPath(""), func() any { return changes })),
		func(w *Printer, e *record.Event) error {
			return w.Line(strings.TrimSpace(e.ID + "  " + record.MarkText(&e.Summary)))
		})
}

func (f *Front) share() *cobra.Command {
	c := &cobra.Command{
		Use: "share ID", Short: "create a link that can replay an event",
		Long: `Create a link with which anybody can replay one event to your tunnel, without an account.
The link is shown once. You can revoke it in the dashboard.` + eventHelp,
		Example: `  relay share evt_01k...
  relay share evt_01k... --expires 1h --view`,
		Args: Takes("event id", 1, 1),
	}
	expires := c.Flags().String("expires", "7d", "`DURATION` until the link expires, such as 12h or 7d, or never")
	view := c.Flags().Bool("view", false, "let viewers see headers and body, secrets masked")
	c.PreRunE = func(*cobra.Command, []string) error {
		if d, err := relay.ParseDuration(*expires); *expires != "never" && (err != nil || d <= 0) {
			return Usage("--expires is a duration above 0 such as 12h or 7d, or never, not %q", *expires)
		}
		return nil
	}
	wanted := func() any {
		if *expires == "never" {
			return map[string]any{"expiresIn": nil, "view": *view}
		}
		return map[string]any{"expiresIn": *expires, "view": *view}
	}
	return Ask(f, c, f.ofEvents(Calling(http.MethodPost, eventPath("/shares"), wanted)),
		func(w *Printer, s *record.Share) error {
			ends := "it never expires; revoke it in the dashboard"
			if s.ExpiresAt != nil {
				ends = "it expires " + s.ExpiresAt.UTC().Format(time.DateTime) + " UTC; revoke it in the dashboard"
			}
			return errors.Join(w.Line(s.URL), w.Line("curl -X POST "+s.ReplayURL), w.Line(ends))
		})
}

func (f *Front) export() *cobra.Command {
	c := &cobra.Command{
		Use: "export ID", Short: "export an event as a command, a record or a test that sends the exact bytes",
		Long: `Export an event: as a curl command that sends it again, as a har or json record, or as a
test in go, js or python that sends the exact bytes.` + eventHelp,
		Example: `  relay export evt_01k...
  relay export evt_01k... --format go > webhook_test.go`,
		Args: Takes("event id", 1, 1),
	}
	format := c.Flags().String("format", "curl", "`FORMAT`: curl, har, json, go, js or python")
	isJSON := false
	c.PreRunE = func(*cobra.Command, []string) error {
		known := record.ExportFormats
		if slices.Contains(known, *format) {
			return nil
		}
		return Usage("--format is %s, not %q", strings.Join(known, ", "), *format).Meant(*format, known, "--format ", "")
	}
	Ask(f, c,
		f.ofEvents(func(ctx context.Context, api *API, args []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
			text, name, err := api.Export(ctx, args[0], *format)
			if err != nil {
				return nil, err
			}
			if isJSON = (*format == "har" || *format == "json") && json.Valid(text); isJSON {
				return text, nil
			}
			return json.Marshal(map[string]string{"format": *format, "id": args[0], "name": name, "text": string(text)})
		}),
		// Exports of a relay contain only printable text and tabs. Should an export contain any other character, it
		// is escaped.
		func(w *Printer, export *json.RawMessage) error {
			var form struct{ Text string }
			// The JSON is indented here, so that the output is the same over HTTP and over SSH.
			var indented bytes.Buffer
			if isJSON && json.Indent(&indented, []byte(record.SafeJSON(*export)), "", "  ") == nil {
				form.Text = strings.TrimSpace(indented.String())
			} else if err := json.Unmarshal(*export, &form); err != nil {
				return err
			}
			return w.Text(form.Text, "\t")
		})
	c.Flags().Lookup("json").Usage = "print the export as JSON: har and json unchanged, other formats as text in an object"
	return c
}

// eventFilter is the filter of a command that lists events: flags with the names of the
// API, and words such as status:5xx after the alias. The filter json has no flag, because
// --json chooses the output.
type eventFilter struct {
	flags map[string]*filterValues
	query url.Values // parse sets this field
}

// filterValues is the pflag.Value of a filter flag that may be repeated.
type filterValues []string

func (v *filterValues) String() string { return "" } // the flag has no default
func (v *filterValues) Type() string   { return "VALUE" }

func (v *filterValues) Set(value string) error {
	*v = append(*v, value)
	return nil
}

// addFilter adds a filter to a command that takes an alias.
func (f *Front) addFilter(c *cobra.Command) *eventFilter {
	filter := &eventFilter{flags: map[string]*filterValues{}}
	for _, n := range record.FilterNames() {
		if n.Name != "alias" && n.Name != "json" {
			filter.flags[n.Name] = &filterValues{}
			c.Flags().Var(filter.flags[n.Name], n.Name, n.Doc)
		}
	}
	c.Use += " [FILTER...]"
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 || args[0] == "" {
			return Usage("%s needs an alias; filters follow it", c.CommandPath()).WithHint("%s", c.UseLine())
		}
		return filter.parse(c, args, f.Quoted)
	}
	return filter
}

// parse reads the filter from the arguments and the flags.
func (f *eventFilter) parse(c *cobra.Command, args []string, quoted map[string]string) error {
	var typed []string
	for _, word := range args[1:] {
		typed = append(typed, cmp.Or(quoted[word], word))
	}
	words, err := record.ParseFilterWords(strings.Join(typed, " "))
	if err != nil {
		return filterUsage(c, err)
	}
	f.query = record.FilterValues(words)
	for name, values := range f.flags {
		for _, value := range *values {
			if name == "path" {
				if value, err = pathPrefix(value); err != nil {
					return err
				}
			}
			if value != "" {
				f.query.Add(name, value)
			}
		}
	}
	if f.query.Has("alias") {
		return Usage("the alias is the first argument").WithHint("%s %s", c.CommandPath(), f.query.Get("alias"))
	}
	all, err := record.ParseFilter(f.query)
	if err != nil {
		return filterUsage(c, err)
	}
	f.query = record.FilterValues(all) // FilterValues converts a duration such as 1h to a time
	f.query.Set("alias", AliasLabel(NormalAlias(args[0])))
	return nil
}

// filterUsage converts an error of record's filter parser into a usage error.
func filterUsage(c *cobra.Command, err error) error {
	return Usage("%s", relay.AsError(err).Detail).WithHint("%s --help lists the filters", c.CommandPath())
}

// pathPrefix completes a path prefix that a user typed: hook means /hook.
func pathPrefix(typed string) (string, error) {
	if typed == "" || strings.ContainsAny(typed[:1], "/?*") {
		return typed, nil
	}
	if u, err := url.Parse(typed); err == nil && u.Host != "" {
		return "", Usage("--path is what the path starts with, not %q", typed).WithHint("did you mean --path %s", cmp.Or(u.RequestURI(), "/"))
	}
	return "/" + typed, nil
}
