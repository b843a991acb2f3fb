package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"relay"
	"relay/record"
)

// command is one command of the session.
type command struct {
	name     string
	args     string // for people, as many as its words; one in brackets may be left out
	does     string
	flags    []flag   // those it takes beside --json
	filters  bool     // it takes the filters of a list, as flags and as further words
	examples []string // what stands behind ssh HOST
	run      func(*call) error
}

// flag is one flag of a command.
type flag struct {
	name     string // as in call.flags; one letter with one hyphen, else two
	also     string // another name for it
	value    string // what it takes, "" = nothing
	empty    bool   // --name= is a value too
	isFilter bool   // it is one of record.FilterNames
	does     string
}

func (f flag) String() string {
	name := dashed(f.name)
	if f.value != "" {
		name += " " + f.value
	}
	return name
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// commands lists what a session can be asked.
func commands() []command {
	return []command{
		{name: "help", args: "[COMMAND]", does: "list the commands, or explain one", examples: []string{"help replay"}, run: (*call).help},
		{name: "whoami", does: "show the account of this key", examples: []string{"whoami"}, run: (*call).whoami},
		{name: "aliases", does: "list aliases with state, URL and queue", examples: []string{"aliases", "aliases --json"}, run: (*call).aliases},
		{name: "events", args: "ALIAS", does: "list the newest events of an alias, the newest last", flags: []flag{
			{name: "n", also: "count", value: "N", does: "how many, 1 to 200; 20 if not given"},
			{name: "f", also: "follow", does: "go on with those to come; q or Ctrl+C ends"},
		}, filters: true, examples: []string{"events stripe-dev -n 50", "events stripe-dev -f --json", "events stripe-dev status:5xx type:invoice.* data.object.id=pi_1"}, run: (*call).events},
		{name: "wait", args: "ALIAS", does: "wait for an event to come and end, and show it", flags: []flag{
			{name: "timeout", value: "DURATION", does: "how long, at most 1h; 30s if not given. Exit 1 when none came"},
		}, filters: true, examples: []string{"wait stripe-dev --path /hook --timeout 1m --json"}, run: (*call).wait},
		{name: "show", args: "ID", does: "show an event with headers, bodies and attempts", examples: []string{"show evt_01k…"}, run: (*call).show},
		{name: "diff", args: "A B", does: "compare two attempts, or the requests of two events", flags: []flag{
			{name: "part", value: "PART", does: "request or response; response if not given and an attempt is named"},
		}, examples: []string{"diff evt_01k…/1 evt_01k…/2", "diff evt_01k… evt_01m… --json"}, run: (*call).diff},
		{name: "replay", args: "ID", does: "send an event again, byte for byte, and compare", examples: []string{"replay evt_01k…"}, run: (*call).replay},
		{name: "replay-queued", args: "ALIAS", does: "send what was queued while offline", examples: []string{"replay-queued stripe-dev"}, run: (*call).replayQueued},
		{name: "mark", args: "ID", does: "pin, label or annotate an event", flags: []flag{
			{name: "pinned", value: "true|false", does: "keep it from retention, or no more"},
			{name: "label", value: "TEXT", empty: true, does: "a label to find it by; --label= removes it"},
			{name: "note", value: "TEXT", empty: true, does: "a note; --note= removes it"},
		}, examples: []string{"mark evt_01k… --pinned true --label bug-17", "mark evt_01k… --note \"'no customer name'\""}, run: (*call).mark},
		{name: "share", args: "ID", does: "let others replay one event", flags: []flag{
			{name: "expires", value: "DURATION", does: "how long the link works, or never; 7d if not given"},
			{name: "view", does: "show headers and body too, secrets masked"},
		}, examples: []string{"share evt_01k… --expires 1h", "share evt_01k… --view"}, run: (*call).share},
		{name: "export", args: "ID", does: "print an event as a command, an archive or a test", flags: []flag{
			{name: "format", value: "FORMAT", does: strings.Join(record.ExportFormats, ", ") + "; curl if not given"},
		}, examples: []string{"export evt_01k…", "export evt_01k… --format har > event.har"}, run: (*call).export},
		{name: "login", does: "make a one-time link to the dashboard", examples: []string{"login"}, run: (*call).login},
		{name: "token", does: "make an API token of the account", flags: []flag{
			{name: "name", value: "TEXT", does: "what the token is for"},
		}, examples: []string{"token --name laptop", "token --json"}, run: (*call).token},
		{name: "keys", does: "list the keys of the account", examples: []string{"keys"}, run: (*call).keys},
		{name: "version", does: "show the version of the relay", examples: []string{"version"}, run: (*call).version},
	}
}

// usage is how the command is typed.
func (c command) usage() string {
	words := []string{c.name}
	if c.args != "" {
		words = append(words, c.args)
	}
	if c.filters {
		words = append(words, "[FILTER…]")
	}
	for _, f := range c.flags {
		words = append(words, "["+f.String()+"]")
	}
	return strings.Join(words, " ")
}

// find gives the command of a name; the error names the one that was meant.
func find(name string) (command, error) {
	var names []string
	for _, c := range commands() {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	text := fmt.Sprintf("unknown command %q", record.SafeTextMax(name, 64))
	if near := record.Nearest(name, names); near != "" {
		text += "; did you mean " + near + "?"
	}
	return command{}, usage(text + "; the command help lists all")
}

// call is one command being run.
type call struct {
	s     *Shell
	json  bool
	words []string // without flags
	flags map[string]string
	code  int

	filterWords []string   // of a command with filters, what stands behind its argument
	filterFlags url.Values // and its flags that are filters
}

// usage is the error of wrong use; its text names what to do.
func usage(text string) error { return relay.Errorf(relay.CodeValidationFailed, "%s", text) }

// dispatch runs a command line and gives its exit code.
func (k *call) dispatch(words []word) int {
	asksHelp := false
	for _, w := range words {
		k.json = k.json || w.text == "--json"
		asksHelp = asksHelp || w.text == "--help" || w.text == "-h"
	}
	for len(words) > 1 && words[0].text == "--json" {
		words = words[1:]
	}
	name, words := words[0], words[1:]
	switch {
	case asksHelp && !strings.HasPrefix(name.text, "-"):
		name, words = word{text: "help"}, []word{name}
	case asksHelp, name.text == "?":
		name, words = word{text: "help"}, nil
	case name.text == "--version":
		name, words = word{text: "version"}, nil
	}
	c, err := find(name.text)
	if err == nil {
		err = k.parse(c, words)
	}
	if err == nil {
		err = c.run(k)
	}
	if err == nil && k.s.Session.Exit(ExitOK) == ExitRefused {
		err = errKeyRemoved
	}
	if err != nil {
		return k.fail(k.cause(err))
	}
	return k.s.Session.Exit(k.code)
}

var errKeyRemoved = relay.Errorf(relay.CodeUnauthorized, "%s", KeyRemovedText)

// cause returns what an error comes from. The removal of a key ends what waits and the
// connection, in any order, and without it each of them looks like a failure of the relay.
func (k *call) cause(err error) error {
	if !slices.Contains([]string{relay.CodeInternal, relay.CodeCanceled, relay.CodeStoreUnavailable}, relay.AsError(err).Code) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.s.Ctx), askTime)
	defer cancel()
	if errors.Is(k.s.Accounts.StillValid(ctx, k.s.Who), relay.ErrNotFound) {
		return errKeyRemoved
	}
	return err
}

// parse separates flags from arguments and counts those.
func (k *call) parse(c command, words []word) error {
	all := c.allFlags()
	for i, only := 0, false; i < len(words); i++ {
		text := words[i].text
		switch argument := only || len(text) < 2 || text[0] != '-'; {
		case argument && c.filters && len(k.words) > 0:
			k.filterWords = append(k.filterWords, words[i].forSearch())
		case argument:
			k.words = append(k.words, text)
		case text == "--":
			only = true
		case text == "--json":
		default:
			name, value, given := strings.Cut(strings.TrimLeft(text, "-"), "=")
			at := slices.IndexFunc(all, func(f flag) bool { return name != "" && (name == f.name || name == f.also) })
			if at < 0 {
				return c.unknownFlag(text, name)
			}
			f := all[at]
			switch {
			case f.value == "" && given:
				return usage("the flag " + dashed(f.name) + " takes no value")
			case f.value != "" && !given && i+1 < len(words):
				i++
				value = words[i].text
			}
			if f.value != "" && value == "" && !(f.empty && given) {
				return usage(fmt.Sprintf("the flag %s needs a value: %s", dashed(f.name), f))
			}
			if k.flags[f.name] = value; f.isFilter {
				k.filterFlags.Add(f.name, value)
			}
		}
	}
	most := len(strings.Fields(c.args))
	least := most
	if strings.HasPrefix(c.args, "[") {
		least = 0
	}
	if len(k.words) < least || len(k.words) > most {
		return usage("usage: " + c.usage())
	}
	return nil
}

// allFlags are the flags of the command, filters included.
func (c command) allFlags() []flag {
	all := slices.Clone(c.flags)
	for _, n := range record.FilterNames() {
		if c.filters && n.Name != "alias" {
			all = append(all, flag{name: n.Name, value: "VALUE", does: n.Doc, isFilter: true})
		}
	}
	return all
}

func (c command) unknownFlag(word, name string) error {
	names := []string{"json"}
	for _, f := range c.allFlags() {
		names = append(names, f.name)
	}
	text := fmt.Sprintf("%s has no flag %q", c.name, record.SafeTextMax(word, 64))
	if near := record.Nearest(name, names); near != "" {
		text += "; did you mean " + dashed(near) + "?"
	}
	return usage(text + "; usage: " + c.usage())
}

// fail says what went wrong on stderr and gives the exit code that goes with it.
func (k *call) fail(err error) int {
	if k.json {
		if text, bad := record.MarshalSafe(record.ProblemOf(err, "")); bad == nil {
			fmt.Fprintln(k.s.Stderr, text)
		}
	} else {
		fmt.Fprintf(k.s.Stderr, "relay: %s\n", problemText(err))
	}
	exit, code := ExitFailure, relay.AsError(err).Code
	if code == relay.CodeInternal && k.s.Ctx.Err() == nil {
		k.s.Log.Error("ssh command", "err", err)
	}
	switch code {
	case relay.CodeValidationFailed:
		exit = ExitUsage
	case relay.CodeNotFound:
		exit = ExitNotFound
	case relay.CodeUnauthorized:
		exit = ExitRefused
	case relay.CodeStopping:
		exit = ExitUnreachable
	}
	return k.s.Session.Exit(exit)
}

// problemText is an error in words for people, without the cause.
func problemText(err error) string {
	return record.SafeText(record.ProblemOf(err, "").Detail)
}

// print writes one JSON object, or the text.
func (k *call) print(object any, text func() string) error {
	if !k.json {
		_, err := io.WriteString(k.s.Stdout, text())
		return err
	}
	line, err := record.MarshalSafe(object)
	if err != nil {
		return err
	}
	_, err = io.WriteString(k.s.Stdout, line+"\n")
	return err
}

// talk writes to people, beside the answer, unless a program reads it.
func (k *call) talk(text string) {
	if !k.json {
		fmt.Fprintf(k.s.Stderr, "relay: %s\n", text)
	}
}

// event reads the event whose id was given, with so much of each body.
func (k *call) event(maxBody int) (*relay.Event, error) {
	id, err := relay.ParseID(k.words[0])
	if err != nil {
		return nil, err
	}
	return k.s.Read.Event(k.s.Ctx, k.s.Who, id, maxBody)
}

// label is the alias name that was given, in any of its spellings.
func (k *call) label() (string, error) {
	label := k.s.Site.AliasLabel(k.words[0])
	if !relay.ValidLabel(label) {
		return "", relay.ErrNotFound
	}
	return label, nil
}

// interruptible lets Ctrl+C at a terminal end a command that takes its time.
func (k *call) interruptible() {
	if !k.s.Screen.HasPTY() {
		return
	}
	k.s.Session.Go("session keys", func() {
		for {
			select {
			case key := <-k.s.Keys:
				if key == "q" {
					k.s.Session.Stop(ExitInterrupted)
				}
			case <-k.s.Ctx.Done():
				return
			}
		}
	})
}

// maxCommand is the longest command line that is read.
const maxCommand = 4096

// word is one word of a command line.
type word struct {
	text string
	raw  string // as it was typed, with quotes
}

// forSearch returns a word as it is typed in a search: what was in quotes stays text in its
// letter case.
func (w word) forSearch() string {
	if !strings.Contains(w.raw, "'") {
		return w.raw
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w.text) + `"`
}

// splitWords splits a command line at white space. Quotes (single or double) and
// backslashes work as in a shell; nothing else does: no variables, no patterns, no
// commands within commands.
func splitWords(line string) (words []word, err error) {
	if len(line) > maxCommand {
		return nil, errors.New("the command is too long")
	}
	var (
		text   strings.Builder
		inWord bool
		start  int
		quote  byte
	)
	begin := func(i int) {
		if !inWord {
			inWord, start = true, i
		}
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == 0:
			return nil, errors.New("the command contains a NUL byte")
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'':
			begin(i)
			if i++; i == len(line) {
				return nil, errors.New("the command ends with a backslash")
			}
			text.WriteByte(line[i])
		case quote != 0:
			text.WriteByte(c)
		case c == '\'' || c == '"':
			begin(i)
			quote = c
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if inWord {
				words, inWord = append(words, word{text.String(), line[start:i]}), false
				text.Reset()
			}
		default:
			begin(i)
			text.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, word{text.String(), line[start:]})
	}
	return words, nil
}

// dial is how people reach this relay.
func (s *Config) dial() string { return "ssh " + s.Site.SSHDestination("") }

// helpText says what can be done here.
func (s *Shell) helpText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "This is the relay %s; you are %s.\n\n", s.Site.Base.Hostname(), record.SafeText(s.Who.AccountName))
	fmt.Fprintf(&b, "Open a tunnel:  %s\n", strings.Replace(s.dial(), "ssh ", "ssh -N -R ALIAS:80:localhost:3000 ", 1))
	fmt.Fprintf(&b, "Run a command:  %s COMMAND\n\n", s.dial())
	for _, k := range commands() {
		fmt.Fprintf(&b, "  %-22s %s\n", strings.TrimSpace(k.name+" "+k.args), k.does)
	}
	b.WriteString("\nhelp COMMAND explains one. Each takes --json.\n" +
		"Exit codes: 0 done, 1 failed, 2 wrong use, 4 not found or not yours.\n\n")
	fmt.Fprintf(&b, "  %s events stripe-dev -f\n  %s replay evt_01k…\n", s.dial(), s.dial())
	return b.String()
}

// helpOf explains one command.
func (s *Config) helpOf(c command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s %s\n\n%s\n\n", s.dial(), c.usage(), c.does)
	for _, f := range append(c.flags, flag{name: "json", does: "print JSON as the API gives it; a stream is one object a line"}) {
		name := f.String()
		if f.also != "" {
			name += ", " + dashed(f.also)
		}
		fmt.Fprintf(&b, "  %-22s %s\n", name, f.does)
	}
	if c.filters {
		b.WriteString("\nfilters, as words such as status:5xx or flags such as --status 5xx:\n")
		for _, n := range record.FilterNames() {
			if n.Name != "alias" {
				fmt.Fprintf(&b, "  %-22s %s\n", n.Example, n.Doc)
			}
		}
	}
	b.WriteString("\nfor example:\n")
	for _, e := range c.examples {
		fmt.Fprintf(&b, "  %s %s\n", s.dial(), e)
	}
	return b.String()
}

// helpFlag is a flag as a program reads it, helpEntry a command.
type (
	helpFlag struct {
		Name        string `json:"name"`
		Value       string `json:"value,omitempty"`
		Description string `json:"description"`
	}
	helpEntry struct {
		Name        string     `json:"name"`
		Usage       string     `json:"usage"`
		Description string     `json:"description"`
		Flags       []helpFlag `json:"flags"`
		Examples    []string   `json:"examples"`
	}
)

func (s *Config) helpEntry(c command) helpEntry {
	e := helpEntry{Name: c.name, Usage: c.usage(), Description: c.does, Flags: []helpFlag{}, Examples: []string{}}
	for _, f := range c.allFlags() {
		e.Flags = append(e.Flags, helpFlag{dashed(f.name), f.value, f.does})
	}
	for _, x := range c.examples {
		e.Examples = append(e.Examples, s.dial()+" "+x)
	}
	return e
}

func (k *call) help() error {
	if len(k.words) > 0 {
		c, err := find(k.words[0])
		if err != nil {
			return err
		}
		return k.print(k.s.helpEntry(c), func() string { return k.s.helpOf(c) })
	}
	entries := []helpEntry{}
	for _, c := range commands() {
		entries = append(entries, k.s.helpEntry(c))
	}
	return k.print(record.ListOf(entries), k.s.helpText)
}

func (k *call) version() error {
	v := struct {
		Version string `json:"version"`
	}{k.s.Version}
	return k.print(v, func() string { return "relayd " + v.Version + "\n" })
}

// filter reads the filters of a command about the events of one alias: flags such as
// --status 5xx, and words as in the search box of the dashboard.
func (k *call) filter(label string) (relay.Filter, error) {
	f, err := record.ParseFilterWords(strings.Join(k.filterWords, " "))
	if err != nil {
		return f, err
	}
	all := record.FilterValues(f)
	for name, values := range k.filterFlags {
		all[name] = append(all[name], values...)
	}
	if f, err = record.ParseFilter(all); err == nil && f.Alias != "" && f.Alias != label {
		return f, usage("the alias is given twice")
	}
	f.Alias = label
	return f, err
}

// fits reports whether a live event fits a filter. Where its summary does not decide, the
// event is read.
func (k *call) fits(f *relay.Filter, e *record.Summary) bool {
	switch record.MatchSummary(f, e) {
	case record.Hit:
		return true
	case record.Miss:
		return false
	}
	id, err := relay.ParseID(e.ID)
	if err != nil {
		return false
	}
	ctx, cancel := k.s.ask()
	defer cancel()
	fits, err := k.s.Read.Matches(ctx, k.s.Who, id, *f)
	if err != nil {
		k.s.Log.Warn("match a live event", "event", e.ID, "err", err)
	}
	return fits
}

// diff compares two responses or two requests.
func (k *call) diff() error {
	var refs [2]relay.AttemptRef
	for i := range refs {
		var err error
		if refs[i], err = record.ParseAttemptRef(k.words[i]); err != nil {
			return err
		}
	}
	part := k.flags["part"]
	if part != "" && part != record.DiffRequest && part != record.DiffResponse {
		return usage("--part is request or response")
	}
	d, err := record.ReadDiff(k.s.Ctx, k.s.Read, k.s.Who, refs[0], refs[1], part)
	if err != nil {
		return err
	}
	return k.print(d, func() string { return record.DiffLines(d) })
}
