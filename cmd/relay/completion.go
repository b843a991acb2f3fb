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
	"relay/cli"
	"relay/client"
	"relay/record"
)

// completionLimit is the longest time that a completion waits for the relay.
const completionLimit = 1500 * time.Millisecond

// shells lists the supported shells, the most common first.
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
		Use: "completion SHELL", Short: "print the completion script of a shell",
		Long: "Print the completion script of bash, zsh, fish or powershell. It completes alias names, too.",
		Example: `  relay completion bash > ~/.local/share/bash-completion/completions/relay
  relay completion zsh > "${fpath[1]}/_relay"
  relay completion fish > ~/.config/fish/completions/relay.fish`,
		Args: cli.Takes("shell: "+strings.Join(shells, ", "), 1, 1), ValidArgs: shells, DisableFlagsInUseLine: true,
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		root := c.Root()
		switch args[0] {
		case "bash":
			return errors.Join(root.GenBashCompletionV2(p.out, true), p.printer().Text(bashFallback, ""))
		case "zsh":
			return root.GenZshCompletion(p.out)
		case "fish":
			return root.GenFishCompletion(p.out, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(p.out)
		}
		return cli.Usage("there is no completion for %q", args[0]).
			Meant(args[0], shells, "relay completion ", strings.Join(shells, ", ")+" are known")
	}
	return c
}

// complete completes alias names, filters and the values of flags of all commands.
func (p *program) complete(root *cobra.Command) {
	const noFiles = cobra.ShellCompDirectiveNoFileComp
	for _, c := range root.Commands() {
		switch c.Name() {
		case "member":
			for _, sub := range c.Commands() {
				sub.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
					if len(args) > 0 {
						return nil, noFiles
					}
					return p.aliasCompletions(c.Context(), typed, nil), noFiles
				}
			}
		case "events", "wait", "replay-queued", "up", "doctor":
			c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				switch several := c.Name() == "up" || c.Name() == "doctor"; {
				case several || len(args) == 0:
					return p.aliasCompletions(c.Context(), typed, args), noFiles
				case c.Name() == "replay-queued":
					return nil, noFiles
				}
				_, words := record.CompleteFilter(typed, nil)
				return words, noFiles | cobra.ShellCompDirectiveNoSpace
			}
			if c.Name() == "up" {
				_ = c.RegisterFlagCompletionFunc("alias", c.ValidArgsFunction)
			}
		case "show", "diff", "replay", "mark", "share", "export", "verify":
			c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 && c.Name() != "diff" {
					return nil, noFiles
				}
				names := p.aliasCompletions(c.Context(), typed, nil)
				if strings.HasPrefix(cli.LastEvent, typed) {
					names = append(names, cli.LastEvent)
				}
				return names, noFiles
			}
		case "completion", "man":
		default:
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
	completeFlags(root)
}

// flagValues lists the words that a flag accepts, by the name of the flag.
var flagValues = map[string][]string{
	"output":      {outputCompact, outputQuiet, outputJSON},
	"host-header": {relay.HostPreserve, relay.HostRewrite},
	"part":        {record.DiffRequest, record.DiffResponse},
	"pinned":      {"true", "false"},
	"expires":     {"1h", "1d", "7d", "30d", "never"},
	"format":      record.ExportFormats,
}

// completeFlags registers the values of each flag, because for a flag without values the shell would offer
// files. Registered completions stay as they are.
func completeFlags(c *cobra.Command) {
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" || f.Name == "config" || f.Name == "identity" {
			return
		}
		values := flagValues[f.Name]
		for _, n := range record.FilterNames() {
			if n.Name == f.Name {
				values = n.Values
			}
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	})
}

// plainUsages removes the backquotes around value names from the flag descriptions. Help interprets the
// quotes, but a completion would print them.
func plainUsages(c *cobra.Command) {
	for _, sub := range c.Commands() {
		plainUsages(sub)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
}

// aliasCompletions lists the alias names that begin with typed, except for those in taken. The names are those
// in webhooks.yaml or, if it has none and the relay answers, those of the account. It prints no message and asks
// nothing.
func (p *program) aliasCompletions(ctx context.Context, typed string, taken []string) []string {
	var names []string
	if conf, err := p.readConfig(); err == nil {
		names = configNames(conf)
	}
	if len(names) == 0 {
		names = p.accountAliases(ctx)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !relay.ValidLabel(name) || !strings.HasPrefix(name, strings.ToLower(typed)) || contains(taken, name)
	})
}

// contains reports whether a list has an alias; letter case and domain may differ.
func contains(others []string, alias string) bool {
	return slices.ContainsFunc(others, func(o string) bool { return client.SameAlias(cli.NormalAlias(o), alias) })
}

func (p *program) accountAliases(ctx context.Context) (names []string) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	quiet := *p
	quiet.err = io.Discard
	api, err := quiet.api(ctx)
	if err != nil {
		return nil
	}
	defer api.Close()
	var list record.List[record.Alias]
	if api.Get(ctx, "/aliases", &list) == nil {
		for _, a := range list.Data {
			names = append(names, a.Name)
		}
	}
	return names
}
