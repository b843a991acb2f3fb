package sshgate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"relay"
	"relay/record"
)

// command is one command of the session.
type command struct {
	name  string
	args  string // for people; the words in capitals are required
	does  string
	flags string // those it takes beside --json
	run   func(*call) error
}

// commands lists what a session can be asked.
func commands() []command {
	return []command{
		{"help", "", "list the commands", "", (*call).help},
		{"whoami", "", "show the account of this key", "", (*call).whoami},
		{"aliases", "", "list aliases with URL, state and queue", "", (*call).aliases},
		{"events", "ALIAS [-n N] [-f]", "list the newest events; -f follows", "n f", (*call).events},
		{"show", "ID", "show an event with its attempts", "", (*call).show},
		{"replay", "ID", "send an event again, byte for byte", "", (*call).replay},
		{"replay-queued", "ALIAS", "send what was queued while offline", "", (*call).replayQueued},
		{"share", "ID [--expires 7d] [--view]", "let others replay one event", "expires view", (*call).share},
		{"login", "", "make a one-time link to the dashboard", "", (*call).login},
		{"keys", "", "list the keys of the account", "", (*call).keys},
		{"version", "", "show the version of the relay", "", (*call).version},
	}
}

// call is one command being run.
type call struct {
	s        *session
	g        *Gate
	ctx      context.Context
	who      relay.Actor
	out, err io.Writer
	json     bool
	words    []string // without flags
	flags    map[string]string
	code     int
}

func (s *session) call() *call {
	return &call{s: s, g: s.c.gate, ctx: s.ctx, who: s.c.who, out: s.stdout(), err: s.stderr(), flags: map[string]string{}}
}

// usageError is wrong use; its text names what to do.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(text string) error { return &usageError{text} }

// dispatch runs a command line and gives its exit code.
func (k *call) dispatch(words []string) int {
	for _, w := range words {
		k.json = k.json || w == "--json"
	}
	for _, c := range commands() {
		if c.name == words[0] {
			if err := k.parse(c, words[1:]); err != nil {
				return k.fail(err)
			}
			if err := c.run(k); err != nil {
				return k.fail(err)
			}
			return k.s.exit(k.code)
		}
	}
	return k.fail(usage(fmt.Sprintf("unknown command %q; the command help lists all", record.SafeTextMax(words[0], 64))))
}

// parse separates flags from arguments and counts those.
func (k *call) parse(c command, words []string) error {
	for i := 0; i < len(words); i++ {
		word := words[i]
		if word == "--json" {
			continue
		}
		if len(word) < 2 || word[0] != '-' {
			k.words = append(k.words, word)
			continue
		}
		name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !strings.Contains(" "+c.flags+" ", " "+name+" ") {
			return usage(fmt.Sprintf("%s has no flag %q", c.name, record.SafeTextMax(word, 64)))
		}
		if takesValue := name == "n" || name == "expires"; takesValue && !given {
			if i++; i == len(words) {
				return usage(fmt.Sprintf("the flag -%s needs a value", name))
			}
			value = words[i]
		}
		k.flags[name] = value
	}
	wanted := 0
	if c.args != "" {
		wanted = 1
	}
	if len(k.words) != wanted {
		return usage(strings.TrimSpace("usage: " + c.name + " " + c.args))
	}
	return nil
}

// fail says what went wrong on stderr and gives the exit code that goes with it.
func (k *call) fail(err error) int {
	var wrong *usageError
	isUsage := errors.As(err, &wrong)
	if isUsage {
		err = relay.Errorf(relay.CodeValidationFailed, "%s", wrong.text)
	}
	if k.json {
		_ = json.NewEncoder(k.err).Encode(record.ProblemOf(err, ""))
	} else {
		fmt.Fprintf(k.err, "relay: %s\n", problemText(err))
	}
	if e := relay.AsError(err); e.Code == relay.CodeInternal {
		k.s.c.log.Error("ssh command", "err", err)
	}
	return k.s.exit(exitOf(err, isUsage))
}

func exitOf(err error, isUsage bool) int {
	switch code := relay.AsError(err).Code; {
	case isUsage, code == relay.CodeValidationFailed:
		return exitUsage
	case code == relay.CodeNotFound:
		return exitNotFound
	case code == relay.CodeUnauthorized:
		return exitRefused
	}
	return exitFailure
}

// problemText is an error in words for people, without the cause.
func problemText(err error) string {
	return record.SafeText(record.ProblemOf(err, "").Detail)
}

// print writes one JSON object, or the text.
func (k *call) print(object any, text func() string) error {
	if k.json {
		return json.NewEncoder(k.out).Encode(object)
	}
	_, err := io.WriteString(k.out, text())
	return err
}

// number is the value of -n.
func (k *call) number() (int, error) {
	text, given := k.flags["n"]
	if !given {
		return 20, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 200 {
		return 0, usage("-n takes a number from 1 to 200")
	}
	return n, nil
}

// id is the event id that was given.
func (k *call) id() (relay.ID, error) { return relay.ParseID(k.words[0]) }

// label is the alias name that was given, in any of its spellings.
func (k *call) label() (string, error) {
	label := normalise(k.words[0], k.g.o.Site.AliasDomain)
	if !relay.ValidLabel(label) {
		return "", relay.ErrNotFound
	}
	return label, nil
}

// helpText says what can be done here.
func helpText(c *conn) string {
	site := &c.gate.o.Site
	host, port := site.SSHAddr, ""
	if h, p, err := net.SplitHostPort(site.SSHAddr); err == nil {
		if host = h; p != "22" {
			port = " -p " + p
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "This is the relay %s; you are %s.\n\n", site.Base.Hostname(), record.SafeText(c.who.AccountName))
	fmt.Fprintf(&b, "Open a tunnel:  ssh -N -R ALIAS:80:localhost:3000%s %s\n", port, host)
	fmt.Fprintf(&b, "Run a command:  ssh%s %s COMMAND\n\n", port, host)
	for _, k := range commands() {
		fmt.Fprintf(&b, "  %-40s %s\n", strings.TrimSpace(k.name+" "+k.args), k.does)
	}
	b.WriteString("\nEach command takes --json.\n")
	return b.String()
}

func (k *call) help() error {
	type entry struct {
		Name        string `json:"name"`
		Usage       string `json:"usage"`
		Description string `json:"description"`
	}
	entries := []entry{}
	for _, c := range commands() {
		entries = append(entries, entry{c.name, strings.TrimSpace(c.name + " " + c.args), c.does})
	}
	return k.print(record.ListOf(entries), func() string { return helpText(k.s.c) })
}

func (k *call) version() error {
	v := struct {
		Version string `json:"version"`
	}{k.g.o.Version}
	return k.print(v, func() string { return "relayd " + v.Version + "\n" })
}
