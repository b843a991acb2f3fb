// Command relay is the thin client: it connects a local server to a permanent public URL (relay up),
// and lists, shows and replays the requests sent to it.
//
// Data goes to stdout, messages to stderr. Package cli defines the exit codes. Lines on stderr begin
// with the name of the program, are in lower case and have no full stop.
package main

import (
	"context"
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
	"relay/cli"
	"relay/client"
	"relay/manual"
	"relay/record"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl+C ends the program at once
	p := &program{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, interrupted: ctx.Done()}
	root := p.root()
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		plainUsages(root)
	}
	root.SetArgs(args)
	code := p.front().Exit(ctx, root.ExecuteContext(ctx))
	if p.flush != nil {
		p.flush()
	}
	return code
}

// program is one run: its streams, its environment and its global flags.
type program struct {
	in     *os.File
	out    *os.File
	err    io.Writer
	flush  func() // writes the queued output of relay up; nil = there is none
	getenv func(string) string
	// interrupted is closed by the first Ctrl+C; nil = never.
	interrupted <-chan struct{}

	server   string
	identity string
	config   string
	output   string
	hostKey  string
	noColor  bool
}

// Values of --output.
const (
	outputCompact = "compact"
	outputQuiet   = "quiet"
	outputJSON    = "json"
)

// root builds the command tree.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "relay",
		Short: "put a local server behind a permanent public URL, and replay what was sent to it",
		Long:  "relay connects a local server to a permanent public URL, and replays the requests sent to it.",
		Example: `  relay up --port 3000 --alias stripe-dev
  relay events stripe-dev -f
  relay replay evt_01k...`,
		Version:           relay.ThisBuild().String(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              cobra.ArbitraryArgs,
		RunE:              cli.UnknownCommand,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return p.checkGlobals(c.Name()) },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&p.server, "server", "", "SSH address `HOST:PORT` of the relay (RELAY_SERVER, then webhooks.yaml, then the newest login, then "+client.DefaultServer+")")
	flags.StringVar(&p.identity, "identity", "", "log in with this private key `FILE` and no other (default: ssh-agent, then ~/.ssh)")
	flags.StringVar(&p.config, "config", "", "use this `FILE` instead of the nearest webhooks.yaml")
	flags.StringVar(&p.output, "output", outputCompact, "output `FORMAT`: compact, quiet or json")
	flags.StringVar(&p.hostKey, "host-key", "", "accept only the host key with this `FINGERPRINT` (SHA256:...)")
	flags.BoolVar(&p.noColor, "no-color", false, "no colors (also NO_COLOR)")
	root.SetFlagErrorFunc(cli.FlagError)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.CompletionOptions.DisableDefaultCmd = true
	cli.AddGroup(root, "Tunnel", p.up())
	p.front().AddCommands(root)
	cli.AddGroup(root, "Account", p.login(), p.logout(), p.whoami())
	cli.AddGroup(root, cli.ThisProgram, p.mcp(), p.doctor(), p.configCommand(), p.completion(), p.versionCommand(), p.man())
	cli.SetHelpCommand(root)
	p.complete(root)
	return root
}

func (p *program) checkGlobals(command string) error {
	switch p.output {
	case outputCompact, outputQuiet, outputJSON:
	default:
		return cli.Usage("--output is compact, quiet or json, not %q", p.output)
	}
	if p.hostKey != "" && !strings.HasPrefix(p.hostKey, "SHA256:") {
		return cli.Usage("--host-key is a fingerprint such as SHA256:…, not %q", p.hostKey)
	}
	// A file that --config names must exist and be valid, even for commands that do not use it. doctor
	// reports an invalid file as a finding.
	if p.config != "" && command != "doctor" {
		_, err := p.readConfig()
		return err
	}
	return nil
}

// front returns the settings, input and output for the commands of package cli.
func (p *program) front() *cli.Front {
	return &cli.Front{
		API: p.api, Printer: p.printer, Say: p.say, JSON: func() bool { return p.output == outputJSON },
		NoAlias: "there are no aliases yet; relay up --port 3000 --alias NAME creates one",
		Edit:    p.edit,
		Stdin:   p.in, Secrets: &cli.Secrets{Getenv: p.getenv, ReadFile: os.ReadFile, Configured: p.configuredSecret},
	}
}

// sayPrefix begins each message on stderr.
const sayPrefix = "relay: "

// say prints a message on stderr, escaped for a terminal.
func (p *program) say(text string) {
	for line := range strings.Lines(text) {
		_, _ = io.WriteString(p.err, sayPrefix+record.SafeText(strings.TrimRight(line, "\r\n"))+"\n")
	}
}

// printer returns the printer for stdout.
func (p *program) printer() *cli.Printer { return &cli.Printer{Out: p.out, Terminal: p.terminal} }

// terminal describes the terminal to which stdout is connected.
func (p *program) terminal() cli.Terminal {
	fd := int(p.out.Fd())
	if !term.IsTerminal(fd) {
		return cli.Terminal{}
	}
	columns, _, _ := term.GetSize(fd) // columns is 0 if the width is unknown
	return cli.Terminal{Color: !p.noColor && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb", Columns: columns}
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

func (p *program) versionCommand() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "print the version", Args: cli.Takes("", 0, 0)}
	asJSON := c.Flags().Bool("json", false, cli.FlagJSON)
	c.RunE = func(*cobra.Command, []string) error {
		if !*asJSON && p.output != outputJSON {
			return p.printer().Line("relay " + relay.ThisBuild().String())
		}
		return p.printer().Object(struct {
			Name string `json:"name"`
			relay.Build
		}{"relay", relay.ThisBuild()})
	}
	return c
}

// man returns the command that writes the manual pages, for packages.
func (p *program) man() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write the manual pages to a directory", Args: cli.Takes("folder", 1, 1), Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			return manual.Manual{Section: 1, End: manEnd}.Write(c.Root(), args[0])
		},
	}
}

// manEnd ends the manual page of relay.
var manEnd = manual.List("EXIT STATUS",
	[2]string{"0", "Success."},
	[2]string{"1", "Failure."},
	[2]string{"2", "Wrong usage."},
	[2]string{"3", "The login was refused, or the host key is not the known one."},
	[2]string{"4", "Not found."},
	[2]string{"5", "The alias was taken over, or is not yours."},
	[2]string{"69", "The relay is unreachable."},
	[2]string{"130", "Interrupted; relay up exits with 0."},
) + manual.List("ENVIRONMENT",
	[2]string{"RELAY_SERVER", "SSH address HOST:PORT of the relay."},
	[2]string{"RELAY_TOKEN", "API token; commands then use the API."},
	[2]string{"RELAY_URL", "Address of the dashboard and API."},
	[2]string{"NO_COLOR", "If set, no colors are used."},
)
