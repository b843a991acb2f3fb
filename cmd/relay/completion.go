package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay"
	"relay/client"
	"relay/record"
)

// completionLimit is how long a person who pressed Tab waits for the relay.
const completionLimit = 1500 * time.Millisecond

// shells are those that completion knows, best known first.
var shells = []string{"bash", "zsh", "fish", "powershell"}

// bashFallback lets the script for bash work where the package bash-completion is not
// installed, whose functions it calls.
const bashFallback = `
__relay_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    words=("${COMP_WORDS[@]}")
    cword=$COMP_CWORD
    cur=${words[cword]}
    prev=${words[cword-1]}
}
`

func (p *program) completion() *cobra.Command {
	c := &cobra.Command{
		Use: "completion SHELL", Short: completionShort, Long: completionLong, Example: completionExample,
		Args: oneArg("shell: " + strings.Join(shells, ", ")), ValidArgs: shells, DisableFlagsInUseLine: true,
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		root := c.Root()
		switch args[0] {
		case "bash":
			return errors.Join(root.GenBashCompletionV2(p.out, true), p.printer().source(bashFallback))
		case "zsh":
			return root.GenZshCompletion(p.out)
		case "fish":
			return root.GenFishCompletion(p.out, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(p.out)
		}
		err := usage("there is no completion for %q", args[0])
		if near := client.Nearest(args[0], shells); near != "" {
			return err.WithHint("did you mean relay completion %s", near)
		}
		return err.WithHint("%s are known", strings.Join(shells, ", "))
	}
	return c
}

// completeAliases gives the commands that take an alias its names to offer.
func (p *program) completeAliases(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "events", "wait", "replay-queued":
			c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return p.completions(c.Context(), typed, nil), cobra.ShellCompDirectiveNoFileComp
			}
		case "up", "doctor":
			offer := func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				return p.completions(c.Context(), typed, args), cobra.ShellCompDirectiveNoFileComp
			}
			c.ValidArgsFunction = offer
			if c.Flags().Lookup("alias") != nil {
				_ = c.RegisterFlagCompletionFunc("alias", offer)
			}
		case "completion", "man":
		default:
			if c.ValidArgsFunction == nil {
				c.ValidArgsFunction = cobra.NoFileCompletions
			}
		}
	}
	completeFlags(root)
}

// flagValues are those of flags that take one of a few words. Other flags take what
// nobody can guess, but for flagFiles.
var flagValues = map[string][]string{
	"output":      {outputCompact, outputQuiet, outputJSON},
	"host-header": {relay.HostPreserve, relay.HostRewrite},
	"method":      {"GET", "POST", "PUT", "PATCH", "DELETE"},
	"expires":     {"1h", "1d", "7d", "30d", "never"},
}

// flagFiles are the flags that take a file, which shells complete by themselves.
var flagFiles = []string{"config", "identity"}

// completeFlags says of each flag what its values are: where nobody does, shells offer
// files. A flag that has words already keeps them.
func completeFlags(c *cobra.Command) {
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
	complete := func(f *pflag.Flag) {
		if f.Value.Type() == "bool" || slices.Contains(flagFiles, f.Name) {
			return
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(flagValues[f.Name], cobra.ShellCompDirectiveNoFileComp))
	}
	c.LocalFlags().VisitAll(complete)
}

// plainUsages takes the quotes around the names of values out of the words about
// flags: help reads them, and completion would show them.
func plainUsages(c *cobra.Command) {
	for _, sub := range c.Commands() {
		plainUsages(sub)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
}

// completions lists alias names that begin as typed: those of webhooks.yaml, else those of
// the account. It says nothing and asks nobody; without an answer there are none.
func (p *program) completions(ctx context.Context, typed string, taken []string) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	var names []string
	if conf, err := p.readConfig(); err == nil {
		names = configNames(conf)
	}
	if len(names) == 0 {
		names = p.aliasesOf(ctx)
	}
	var list []string
	for _, name := range names {
		if relay.ValidLabel(name) && strings.HasPrefix(name, strings.ToLower(typed)) && !contains(taken, name) {
			list = append(list, name)
		}
	}
	return list
}

func contains(taken []string, name string) bool {
	for _, t := range taken {
		if client.SameAlias(client.NormalAlias(t), name) {
			return true
		}
	}
	return false
}

func (p *program) aliasesOf(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	quiet := *p
	quiet.err = io.Discard // no talk, and nobody to ask
	remote, err := quiet.remote(ctx)
	if err != nil {
		return nil
	}
	var answer bytes.Buffer
	var list record.List[record.Alias]
	if remote.Run(ctx, client.Command{Name: "aliases"}, &answer) != nil || json.Unmarshal(answer.Bytes(), &list) != nil {
		return nil
	}
	var names []string
	for _, a := range list.Data {
		names = append(names, a.Name)
	}
	return names
}
