package main

import (
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"relay"
	"relay/client"
	"relay/record"
)

// eventFilter is the filter of a command that lists events: flags with the names of the
// API, and words such as status:5xx after the alias. The filter json has no flag, because
// --json chooses the output.
type eventFilter struct {
	flags map[string]*filterValues
	query url.Values // set by parse
}

// filterValues are the values of a flag, as a pflag.Value.
type filterValues []string

// String returns no default.
func (v *filterValues) String() string { return "" }

// Set adds a value.
func (v *filterValues) Set(value string) error {
	*v = append(*v, value)
	return nil
}

// Type is the name of the value in help.
func (v *filterValues) Type() string { return "VALUE" }

// addFilter adds a filter to a command, which takes an alias.
func addFilter(c *cobra.Command) *eventFilter {
	f := &eventFilter{flags: map[string]*filterValues{}}
	for _, n := range record.FilterNames() {
		switch n.Name {
		case "alias", "json":
			continue
		}
		f.flags[n.Name] = &filterValues{}
		c.Flags().Var(f.flags[n.Name], n.Name, n.Doc)
	}
	c.Use += " [FILTER...]"
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 || args[0] == "" {
			return usage("%s takes one alias, and then filters", c.CommandPath()).WithHint("%s", c.UseLine())
		}
		return f.parse(args)
	}
	return f
}

// parse reads the filter from the arguments and the flags.
func (f *eventFilter) parse(args []string) error {
	words, err := record.ParseFilterWords(strings.Join(args[1:], " "))
	if err != nil {
		return filterUsage(err)
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
		return usage("the alias is the first argument").WithHint("relay events %s", f.query.Get("alias"))
	}
	all, err := record.ParseFilter(f.query)
	if err != nil {
		return filterUsage(err)
	}
	f.query = record.FilterValues(all) // durations are times now
	f.query.Set("alias", client.NormalAlias(args[0]))
	return nil
}

// filterUsage turns an error of record's parser into one about the command line.
func filterUsage(err error) error {
	e := relay.AsError(err)
	return usage("%s", e.Detail).WithHint("%s", hintFilter)
}
