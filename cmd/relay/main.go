// Command relay is the thin client: it puts a local server behind a permanent
// public URL (relay up), and lists, shows and replays what was sent to it.
//
// Data goes to stdout, talk to stderr. Exit codes are those of package client.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"relay"
	"relay/client"
	"relay/record"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl+C ends at once
	p := &program{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, interrupted: ctx.Done()}
	root := p.root()
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		plainUsages(root)
	}
	root.SetArgs(args)
	return p.exit(ctx, root.ExecuteContext(ctx))
}

// program is one run: its streams, its environment and its global flags.
type program struct {
	in     *os.File
	out    *os.File
	err    io.Writer
	getenv func(string) string
	// interrupted is closed by the first Ctrl+C; nil = there is none.
	interrupted <-chan struct{}

	server   string
	identity string
	config   string
	output   string
	hostKey  string
	noColor  bool
}

// root builds the command tree; each command has a file of its own.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "relay",
		Short:             rootShort,
		Long:              rootLong,
		Example:           rootExample,
		Version:           relay.ThisBuild().String(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              cobra.ArbitraryArgs,
		RunE:              unknownCommand,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return p.checkGlobals(c.Name()) },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&p.server, "server", "", flagServer)
	flags.StringVar(&p.identity, "identity", "", flagIdentity)
	flags.StringVar(&p.config, "config", "", flagConfig)
	flags.StringVar(&p.output, "output", outputCompact, flagOutput)
	flags.StringVar(&p.hostKey, "host-key", "", flagHostKey)
	flags.BoolVar(&p.noColor, "no-color", false, flagNoColor)
	root.SetFlagErrorFunc(flagError)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.CompletionOptions.DisableDefaultCmd = true
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"tunnel", tunnelGroup, []*cobra.Command{p.up()}},
		{"events", eventsGroup, []*cobra.Command{
			p.aliases(), p.events(), p.wait(), p.show(), p.diff(), p.replay(), p.replayQueued(), p.mark(), p.share(), p.export(),
		}},
		{"account", accountGroup, []*cobra.Command{p.login(), p.logout(), p.whoami()}},
		{"program", programGroup, []*cobra.Command{p.doctor(), p.configCommand(), p.completion(), p.versionCommand(), p.man()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
		}
		root.AddCommand(g.commands...)
	}
	root.SetHelpCommandGroupID("program")
	root.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]", Short: helpShort, Args: cobra.ArbitraryArgs, RunE: help, GroupID: "program"})
	p.completeAliases(root)
	return root
}

// Values of --output.
const (
	outputCompact = "compact"
	outputQuiet   = "quiet"
	outputJSON    = "json"
)

func (p *program) checkGlobals(command string) error {
	switch p.output {
	case outputCompact, outputQuiet, outputJSON:
	default:
		return usage("--output is compact, quiet or json, not %q", p.output)
	}
	if p.hostKey != "" && !strings.HasPrefix(p.hostKey, "SHA256:") {
		return usage("--host-key is a fingerprint such as SHA256:…, not %q", p.hostKey)
	}
	// A file that is named must exist and be valid, even for commands that do not use
	// it. The doctor reports it as a finding instead.
	if p.config != "" && command != "doctor" {
		_, err := p.readConfig()
		return err
	}
	return nil
}

// exit prints an error and returns the exit code.
func (p *program) exit(ctx context.Context, err error) int {
	var e *client.Error
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return client.ExitInterrupted
	case errors.As(err, &e):
		p.say(e.Error())
		if e.Hint != "" {
			p.say(hintPrefix + e.Hint)
		}
		return e.Exit
	}
	p.say(err.Error())
	return client.ExitFailure
}

// say prints lines for people on stderr, escaped for a terminal.
func (p *program) say(text string) {
	for line := range strings.Lines(text) {
		_, _ = io.WriteString(p.err, sayPrefix+record.SafeText(strings.TrimRight(line, "\r\n"))+"\n")
	}
}

// colored reports whether stdout gets colors.
func (p *program) colored() bool {
	return !p.noColor && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb" && term.IsTerminal(int(p.out.Fd()))
}

func (p *program) home() string {
	if home := p.getenv("HOME"); home != "" {
		return home
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		return u.HomeDir
	}
	return string(filepath.Separator)
}

// readConfig reads the webhooks.yaml that was named or is nearest; without one it
// returns an empty configuration.
func (p *program) readConfig() (*client.Config, error) {
	if p.config != "" {
		return client.ReadConfig(p.config, p.config)
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	path := client.FindConfig(dir)
	if path == "" {
		return &client.Config{}, nil
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		name = path
	}
	return client.ReadConfig(path, name)
}
