// Command relayd is the Relay server. It reads the settings, connects the packages, and has the commands for
// operators.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/manual"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // under nohup SIGHUP is ignored, and must stay so
		signal.Notify(signals, syscall.SIGHUP) // the system sends SIGHUP when the terminal is closed
	}
	go func() {
		<-signals
		cancel()
		<-signals // a second signal ends the process at once
		os.Exit(cli.ExitFailure)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run runs the program with args and returns its exit code. A server stops gracefully
// when ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	c := &program{getenv: getenv, stdout: stdout, stderr: stderr}
	defer c.closeOutputs()
	root := c.rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return cli.ExitOK
	}
	var wrong *cli.Error
	text := userMessage(err)
	if errors.As(err, &wrong) && wrong.Hint != "" {
		text += "\nhint: " + wrong.Hint
	}
	for line := range strings.SplitSeq(maskArguments(text, args), "\n") {
		c.report("%s", line)
	}
	// An invalid setting or name is an error of usage, as in the program relay and in the commands of plain ssh.
	if wrong != nil {
		return wrong.Exit
	}
	if relay.AsError(err).Code == relay.CodeValidationFailed {
		return cli.ExitUsage
	}
	return cli.ExitFailure
}

// maskArguments hides the arguments in an error text if one of them may hold a secret, even a secret that the
// shell has split at spaces.
func maskArguments(text string, args []string) string {
	if !looksSecret(strings.Join(args, " ")) {
		return text
	}
	for _, arg := range args {
		if _, value, ok := strings.Cut(arg, "="); ok { // value of --flag=value
			text = strings.ReplaceAll(text, strconv.Quote(value), strconv.Quote(hidden))
		}
		text = strings.ReplaceAll(text, strconv.Quote(arg), strconv.Quote(hidden))
		if looksSecret(arg) {
			text = strings.ReplaceAll(text, arg, hidden)
		}
	}
	return text
}

// program is one run: its environment, its output and its log. All loggers write to one output and share a
// level, which may change while the program runs.
type program struct {
	getenv         func(string) string
	stdout, stderr io.Writer
	level          slog.LevelVar
	recent         recentLines
	out, errs      *output  // stdout and stderr while serve runs, otherwise nil
	storeFlags     *flagSet // flags of the commands whose help shows only the settings of the store
}

// report prints a message to stderr.
func (c *program) report(format string, args ...any) {
	fmt.Fprintf(c.stderr, "relayd: "+format+"\n", args...)
}

// userMessage returns the text of an error for an operator: without codes, but with its causes.
func userMessage(err error) string {
	e, ok := errors.AsType[*relay.Error](err)
	if !ok || e.Detail == "" {
		return err.Error()
	}
	text := strings.Replace(err.Error(), e.Error(), e.Detail, 1)
	if e.Cause != nil && e.Code != relay.CodeConflict { // the cause of a conflict is an internal code
		text += ": " + e.Cause.Error()
	}
	return text
}

func (c *program) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "relayd",
		Short: "the Relay server: permanent webhook URLs, tunnels by ssh, byte-for-byte replay",
		Long: `relayd gives the server on your machine a permanent public URL, stores every request sent
to it, and sends any of them again, byte for byte.`,
		Example: `  relayd serve --data-dir .relay
  relayd user add alice --key alice.pub
  relayd token add --user alice`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       relay.ThisBuild().String(),
		Args:          cobra.ArbitraryArgs,
		RunE:          cli.UnknownCommand,
	}
	cli.AddGroup(root, "Server", c.serveCommand(), c.configCommand(), c.nodeCommand(), c.tunnelCommand())
	cli.AddGroup(root, "Accounts", c.userCommand(), c.inviteCommand(), c.loginLinkCommand(), c.keyCommand(), c.tokenCommand(), c.sessionCommand())
	cli.AddGroup(root, "Aliases", c.aliasCommand(), c.secretCommand(), c.shareCommand())
	cli.AddGroup(root, "Data", c.backupCommand(), c.migrateCommand(), c.migrateStoreCommand(), c.secretKeyCommand())
	cli.AddGroup(root, "Diagnosis", c.doctorCommand(), c.healthcheckCommand(), c.supportCommand(), c.auditCommand())
	cli.AddGroup(root, cli.ThisProgram, c.versionCommand(), c.manCommand())
	cli.SetHelpCommand(root)
	root.SetCompletionCommandGroupID(cli.ThisProgram)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() { // completion, too, must refuse an unknown shell and a missing one
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = noSuchCommand, needsOne
			cmd.Short = "print the completion script of a shell"
			for _, shell := range cmd.Commands() {
				shell.Short = "print the completion script of " + shell.Name()
			}
		}
	}
	root.SetFlagErrorFunc(cli.FlagError)
	return root
}

// group returns a command with subcommands and no action of its own.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noSuchCommand, RunE: needsOne}
	cmd.AddCommand(subs...)
	return cmd
}

// needsOne returns a usage error for a command group that is called without a subcommand.
func needsOne(cmd *cobra.Command, _ []string) error {
	names := mapSlice(cmd.Commands(), (*cobra.Command).Name)
	return cli.Usage("%s needs one of %s", cmd.CommandPath(), strings.Join(names, ", "))
}

// noSuchCommand refuses an unknown subcommand.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cli.UnknownCommand(cmd, args)
}

func (c *program) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "print version, commit, date, Go and platform", Args: cli.Takes("", 0, 0)}
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

// manCommand returns the command that writes the manual pages, for packages.
func (c *program) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write the manual pages to a directory", Args: cli.Takes("DIR", 1, 1), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return manual.Manual{Section: 8, End: manualEnd}.Write(cmd.Root(), args[0])
		},
	}
}

// manualEnd ends the manual page of relayd.
var manualEnd = manual.List("EXIT STATUS",
	[2]string{"0", "Success; for serve, a graceful stop."},
	[2]string{"1", "Failure; for serve also a stop in which requests were cut."},
	[2]string{"2", "Wrong usage."},
) + `.SH FILES
.TP
.I /etc/relayd/relayd.yaml
Settings of the packaged service.
.TP
.I /var/lib/relayd
Data of the packaged service: events, host key, spool, certificates.
.SH ENVIRONMENT
Each setting is read from its flag, else from RELAY_ and its name in capitals, else from the file of
\-\-config or RELAY_CONFIG. relayd config prints the values in force and where each comes from.
`
