package main

import (
	"context"
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

// completionLimit is how long a completion may wait for the relay.
const completionLimit = 1500 * time.Millisecond

// shells lists the supported shells, most used first.
var shells = []string{"bash", "zsh", "fish", "powershell"}

// bashFallback makes the bash script work without the package bash-completion, whose
// functions it calls.
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
		if near := record.Nearest(args[0], shells); near != "" {
			return err.WithHint("did you mean relay completion %s", near)
		}
		return err.WithHint("%s are known", strings.Join(shells, ", "))
	}
	return c
}

// completeAliases completes alias names for the commands that take them.
func (p *program) completeAliases(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "events", "wait", "replay-queued":
			c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 && c.Name() != "replay-queued" {
					_, words := record.CompleteFilter(typed, nil)
					return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
				}
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

// flagValues lists the values of flags that take one of a few words.
var flagValues = map[string][]string{
	"output":      {outputCompact, outputQuiet, outputJSON},
	"host-header": {relay.HostPreserve, relay.HostRewrite},
	"part":        {record.DiffRequest, record.DiffResponse},
	"pinned":      {"true", "false"},
	"expires":     {"1h", "1d", "7d", "30d", "never"},
}

// flagFiles lists the flags that take a file, which the shell completes.
var flagFiles = []string{"config", "identity"}

// completeFlags registers the values of each flag. For a flag without any the shell
// would offer files. Registered completions are kept.
func completeFlags(c *cobra.Command) {
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
	complete := func(f *pflag.Flag) {
		if f.Value.Type() == "bool" || slices.Contains(flagFiles, f.Name) {
			return
		}
		values := flagValues[f.Name]
		for _, n := range record.FilterNames() {
			if n.Name == f.Name {
				values = n.Values
			}
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	c.LocalFlags().VisitAll(complete)
}

// plainUsages removes the quotes around value names from the flag descriptions: help
// interprets them, completion would print them.
func plainUsages(c *cobra.Command) {
	for _, sub := range c.Commands() {
		plainUsages(sub)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
}

// completions lists alias names with a prefix: those of webhooks.yaml, else those of
// the account. It prints nothing, prompts nobody, and returns none when the relay does
// not answer.
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
	quiet.err = io.Discard // no messages, no prompts
	api, err := quiet.api(ctx)
	if err != nil {
		return nil
	}
	defer api.Close()
	var list record.List[record.Alias]
	if api.Get(ctx, "/aliases", &list) != nil {
		return nil
	}
	var names []string
	for _, a := range list.Data {
		names = append(names, a.Name)
	}
	return names
}
