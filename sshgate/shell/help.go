package shell

import (
	"fmt"
	"strings"

	"relay/record"
)

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
			if isFilterFlag(n.Name) {
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

// helpEntry is a command as a program reads it.
type helpEntry struct {
	Name        string     `json:"name"`
	Usage       string     `json:"usage"`
	Description string     `json:"description"`
	Flags       []helpFlag `json:"flags"`
	Examples    []string   `json:"examples"`
}

type helpFlag struct {
	Name        string `json:"name"`
	Value       string `json:"value,omitempty"`
	Description string `json:"description"`
}

func (s *Config) helpEntry(c command) helpEntry {
	e := helpEntry{Name: c.name, Usage: c.usage(), Description: c.does, Flags: []helpFlag{}, Examples: []string{}}
	for _, f := range c.flags {
		e.Flags = append(e.Flags, helpFlag{dashed(f.name), f.value, f.does})
	}
	for _, n := range record.FilterNames() {
		if c.filters && isFilterFlag(n.Name) {
			e.Flags = append(e.Flags, helpFlag{dashed(n.Name), "VALUE", n.Doc})
		}
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
