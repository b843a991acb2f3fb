// Command relayd is the Relay server. It reads the settings, connects the packages, and
// has the operator commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay"
	"relay/manual"
	"relay/record"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(run(signalContext(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// signalContext returns a context that ends with the first SIGINT or SIGTERM. A second
// signal ends the process at once.
func signalContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(exitFailure)
	}()
	return ctx
}

// run runs the program with args and returns its exit code. A server stops gracefully
// when ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	c := &cli{getenv: getenv, stdout: stdout, stderr: stderr}
	root := c.rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	c.printError(err)
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// cli is one run of the program: its environment and output.
type cli struct {
	getenv         func(string) string
	stdout, stderr io.Writer
	logging        logging
}

// usageError is a mistake in the arguments or settings: exit code 2.
type usageError struct {
	err  error
	hint string // "" = none
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

func (c *cli) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "relayd",
		Short:         "the Relay server: permanent webhook URLs, tunnels by ssh, byte-for-byte replay",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       relay.ThisBuild().String(),
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		c.serveCommand(), c.migrateCommand(),
		c.nodeCommand(), c.tunnelCommand(), c.userCommand(), c.keyCommand(), c.aliasCommand(), c.tokenCommand(),
		c.loginLinkCommand(), c.inviteCommand(), c.auditCommand(), c.backupCommand(), c.doctorCommand(), c.supportCommand(),
		c.healthcheckCommand(), c.configCommand(), c.versionCommand(), c.manCommand(),
	)
	strictCompletion(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{err: flagError(cmd, err), hint: fmt.Sprintf(hintHelp, cmd.CommandPath())}
	})
	return root
}

// strictCompletion makes cobra's completion command refuse an unknown shell, and a call
// without one, as the other command groups do.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = noSuchCommand, needsOne
		}
	}
}

// group returns a command that only has subcommands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noSuchCommand, RunE: needsOne}
	cmd.AddCommand(subs...)
	return cmd
}

// needsOne refuses a call of a group without a subcommand.
func needsOne(cmd *cobra.Command, _ []string) error {
	names := make([]string, 0, len(cmd.Commands()))
	for _, s := range cmd.Commands() {
		names = append(names, s.Name())
	}
	return usagef(needsSubcommand, cmd.CommandPath(), strings.Join(names, ", "))
}

// noSuchCommand refuses an unknown subcommand of a group.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf(hintHelp, cmd.CommandPath())
	var names []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	if near := record.Nearest(args[0], names); near != "" {
		hint = fmt.Sprintf(hintMeant, near)
	}
	return &usageError{err: fmt.Errorf(unknownCommand, cmd.CommandPath(), args[0]), hint: hint}
}

// exactly requires the named arguments.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		hint := fmt.Sprintf(hintHelp, cmd.CommandPath())
		if len(args) < len(names) {
			return &usageError{err: fmt.Errorf(missingArgument, names[len(args)]), hint: hint}
		}
		return &usageError{err: fmt.Errorf(extraArgument, args[len(names)]), hint: hint}
	}
}

// flagError adds the most similar flag to an error about an unknown one.
func flagError(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) && wrong.GetFlag().Value.Type() == "int" {
		return fmt.Errorf("--%s takes a whole number, not %q", wrong.GetFlag().Name, wrong.GetValue())
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := record.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf(meantFlag, err, near)
	}
	return err
}

func (c *cli) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "print version, commit, date, Go and platform", Args: exactly()}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if *asJSON {
			return printJSON(c.stdout, struct {
				Name string `json:"name"`
				relay.Build
			}{"relayd", relay.ThisBuild()})
		}
		_, err := fmt.Fprintf(c.stdout, "relayd %s\n", relay.ThisBuild())
		return err
	}
	return cmd
}

// manCommand writes the manual pages, for packages.
func (c *cli) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write the manual pages to a directory", Args: exactly("DIR"), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return manual.Manual{Section: 8, End: manualEnd}.Write(cmd.Root(), args[0])
		},
	}
}
