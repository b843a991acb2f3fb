package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay"
	"relay/cli"
	"relay/record"
)

// command runs a command line and returns its exit code.
func (s *Shell) command(words []word) int {
	f := s.front()
	args := make([]string, 0, len(words))
	for _, w := range words {
		args = append(args, w.text)
		if w.raw != w.text {
			f.Quoted[w.text] = w.forSearch()
		}
	}
	root := s.root(f)
	root.SetArgs(args)
	var err error
	if strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // cobra adds this command for completion, but a session does not offer it
		err = cli.UnknownCommand(root, args)
	} else {
		err = root.ExecuteContext(s.Ctx)
	}
	var failed *cli.Error
	switch code := s.Session.Exit(cli.ExitOK); {
	case s.Ctx.Err() == nil && slices.Contains(args, "--json") && errors.As(err, &failed) && (failed.Code != "" || failed.Exit == cli.ExitUsage):
		// With --json, an error of the API and wrong usage are both printed in the JSON form of errors of the
		// API.
		p := record.ProblemOf(relay.Errorf(cmp.Or(failed.Code, relay.CodeValidationFailed), "%s", failed.Error()), "")
		_ = (&cli.Printer{Out: s.Stderr}).Object(p)
		return failed.Exit
	case err == nil || s.Ctx.Err() == nil:
		return f.Exit(s.Ctx, err)
	case code == cli.ExitRefused:
		f.Say(KeyRemovedText)
	case code == cli.ExitUnreachable:
		f.Say(StoppingText)
	}
	return s.Session.Exit(cli.ExitInterrupted)
}

// front returns the Front with which commands of package cli run in this session.
func (s *Shell) front() *cli.Front {
	f := &cli.Front{
		API:     func(context.Context) (*cli.API, error) { return s.api(), nil },
		Printer: func() *cli.Printer { return s.printer },
		Say: func(text string) {
			for line := range strings.Lines(text) {
				fmt.Fprintf(s.Stderr, "relay: %s\n", record.SafeText(strings.TrimRight(line, "\r\n")))
			}
		},
		NoAlias: "no alias yet; ssh -N -R ALIAS:80:localhost:3000 makes one",
		Quoted:  map[string]string{},
		Stdin:   s.Stdin,
	}
	if s.NoClaim {
		f.NoAlias = "no alias yet; make one in the dashboard, or have an admin run: relayd alias add"
	}
	return f
}

// api returns the API of the account of this session.
func (s *Shell) api() *cli.API {
	api := cli.NewSSHAPI(s.Version, s.Site.SSHAddr, s.Session.OpenAPI, nil)
	api.Hold = s.Hold
	return api
}

// root returns the commands of a session.
func (s *Shell) root(f *cli.Front) *cobra.Command {
	root := &cobra.Command{
		Use: "ssh", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: s.dial()},
		Long: fmt.Sprintf("This is the relay %s; you are %s.\n\nOpen a tunnel:  %s\nRun a command:  %s COMMAND\n\n"+
			"Exit codes: 0 done, 1 failed, 2 wrong use, 4 not found or not yours.",
			s.Site.Base.Hostname(), record.SafeText(s.Who.AccountName),
			strings.Replace(s.dial(), "ssh ", "ssh -N -R ALIAS:80:localhost:3000 ", 1), s.dial()),
		SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs, RunE: cli.UnknownCommand,
	}
	root.SetFlagErrorFunc(cli.FlagError)
	root.SetOut(s.Stdout)
	root.SetErr(s.Stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	f.AddCommands(root)
	cli.AddGroup(root, "Account", s.whoami(f), s.login(f), s.token(f), s.keys(f))
	help := s.help(f)
	cli.AddGroup(root, cli.ThisProgram, s.version(f), help)
	root.SetHelpCommand(help)
	s.nameExamples(root)
	return root
}

// nameExamples replaces the program in the examples of c and its subcommands with the ssh command for this
// relay.
func (s *Config) nameExamples(c *cobra.Command) {
	for _, sub := range c.Commands() {
		sub.Example = strings.ReplaceAll(sub.Example, "  relay ", "  "+s.dial()+" ")
		s.nameExamples(sub)
	}
}

// dial returns the ssh command for this relay.
func (s *Config) dial() string { return "ssh " + s.Site.SSHDestination("") }

// answer returns a Question whose answer is the JSON of the value that the function object returns.
func answer(object func(ctx context.Context, api *cli.API) (any, error)) cli.Question {
	return func(ctx context.Context, api *cli.API, _ []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
		o, err := object(ctx, api)
		if err != nil {
			return nil, err
		}
		return json.Marshal(o)
	}
}

func (s *Shell) whoami(f *cli.Front) *cobra.Command {
	c := &cobra.Command{Use: "whoami", Short: "show the account of this key", Example: "  relay whoami", Args: cli.Takes("", 0, 0)}
	return cli.Ask(f, c, cli.Calling(http.MethodGet, func([]string) string { return "/me" }, nil), func(w *cli.Printer, me *record.Me) error {
		if me.Admin {
			return w.Line(me.User + " (admin)")
		}
		return w.Line(me.User)
	})
}

// linkTime is how long a dashboard link of the command login works.
const linkTime = 15 * time.Minute

// loginLink is the output of the command login.
type loginLink struct {
	URL       string      `json:"url"`
	ExpiresAt record.Time `json:"expiresAt"`
}

// login returns the command that prints a dashboard link for the account of this connection.
func (s *Shell) login(f *cli.Front) *cobra.Command {
	c := &cobra.Command{Use: "login", Short: "make a one-time link to the dashboard", Example: "  relay login", Args: cli.Takes("", 0, 0)}
	return cli.Ask(f, c, answer(func(ctx context.Context, _ *cli.API) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		if err := s.Limits.Create(s.Who); err != nil {
			return nil, problem(err)
		}
		secret, err := s.Accounts.CreateLoginLink(ctx, s.Who, s.Who.AccountName, linkTime)
		return loginLink{s.Site.URL("/login/" + secret), record.Time{Time: time.Now().Add(linkTime)}}, problem(err)
	}), func(w *cli.Printer, link *loginLink) error {
		f.Say("the link opens the dashboard as " + s.Who.AccountName + ", once, within " + relay.FormatDuration(linkTime))
		return w.Line(link.URL)
	})
}

// problem converts an error of the store into the error that the API would return.
func problem(err error) error {
	if err == nil {
		return nil
	}
	e := cli.Errorf(cli.ExitFailure, "%s", record.ProblemOf(err, "").Detail)
	e.Code = relay.AsError(err).Code
	return e
}

// token returns the command that makes an API token with all scopes of the account. It prints only the
// token, so that a script can store it.
func (s *Shell) token(f *cli.Front) *cobra.Command {
	c := &cobra.Command{
		Use: "token", Short: "make an API token for the account; it expires after 90 days without use",
		Example: "  relay token --name laptop\n  relay token --json", Args: cli.Takes("", 0, 0),
	}
	name := c.Flags().String("name", "made by ssh", "`TEXT` that says what the token is for")
	return cli.Ask(f, c, answer(func(ctx context.Context, api *cli.API) (any, error) {
		return api.MakeToken(ctx, *name)
	}), func(w *cli.Printer, token *record.Token) error {
		f.Say("the token does all that " + s.Who.AccountName + " may; it expires after 90 days without use")
		return w.Line(token.Token)
	})
}

func (s *Shell) keys(f *cli.Front) *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "list the keys of the account", Example: "  relay keys", Args: cli.Takes("", 0, 0)}
	return cli.Ask(f, c, cli.Calling(http.MethodGet, func([]string) string { return "/keys" }, nil), func(w *cli.Printer, key *record.Key) error {
		line := key.Fingerprint + "  " + key.Type + "  " + key.Name
		if key.ID == s.Who.Credential {
			line += "  (this key)"
		}
		return w.Line(line)
	})
}

func (s *Shell) version(f *cli.Front) *cobra.Command {
	type version struct {
		Version string `json:"version"`
	}
	c := &cobra.Command{Use: "version", Short: "show the version of the relay", Example: "  relay version", Args: cli.Takes("", 0, 0)}
	return cli.Ask(f, c, answer(func(context.Context, *cli.API) (any, error) { return version{s.Version}, nil }),
		func(w *cli.Printer, v *version) error { return w.Line("relayd " + v.Version) })
}

// helpFlag and helpEntry describe a flag and a command in JSON.
type (
	helpFlag struct {
		Name        string `json:"name"`
		Value       string `json:"value,omitempty"`
		Description string `json:"description"`
	}
	helpEntry struct {
		Name        string     `json:"name"`
		Usage       string     `json:"usage"`
		Description string     `json:"description"`
		Flags       []helpFlag `json:"flags"`
		Examples    []string   `json:"examples"`
	}
)

func entryOf(c *cobra.Command) helpEntry {
	e := helpEntry{c.Name(), c.UseLine(), c.Short, []helpFlag{}, strings.Split(strings.TrimSpace(strings.ReplaceAll(c.Example, "\n  ", "\n")), "\n")}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		value, does := pflag.UnquoteUsage(f)
		e.Flags = append(e.Flags, helpFlag{"--" + f.Name, value, does})
	})
	return e
}

// help returns the command that explains the commands, with --json for programs. cobra adds its own help
// command when root runs, which is too late for nameExamples.
func (s *Shell) help(f *cli.Front) *cobra.Command {
	c := &cobra.Command{Use: "help [COMMAND]", Short: "list the commands, or explain one", Example: "  " + s.dial() + " help replay", Args: cobra.ArbitraryArgs}
	asJSON := c.Flags().Bool("json", false, cli.FlagJSON)
	c.RunE = func(c *cobra.Command, args []string) error {
		if !*asJSON {
			return cli.Help(c, args)
		}
		if len(args) == 0 {
			entries := []helpEntry{}
			for _, sub := range c.Root().Commands() {
				entries = append(entries, entryOf(sub))
			}
			return s.printer.Object(record.ListOf(entries))
		}
		found, rest, err := c.Root().Find(args)
		if err != nil || len(rest) > 0 {
			return cli.UnknownCommand(c.Root(), args)
		}
		return s.printer.Object(entryOf(found))
	}
	return c
}

// maxCommand is the longest command line that is read.
const maxCommand = 4096

// word is one word of a command line.
type word struct {
	text string
	raw  string // the word as typed, with quotes
}

// forSearch returns the word as the query language of searches spells it. That language has no single quotes, so
// a word that was typed with them gets double quotes.
func (w word) forSearch() string {
	if !strings.Contains(w.raw, "'") {
		return w.raw
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w.text) + `"`
}

// splitWords splits a command line at white space. Quotes (single or double) and backslashes work as
// in a shell. Variables, patterns and commands within commands do not.
func splitWords(line string) (words []word, err error) {
	if len(line) > maxCommand {
		return nil, errors.New("the command is too long")
	}
	var text strings.Builder
	start := -1 // start of the current word; -1 between words
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		if quote == 0 && strings.IndexByte(" \t\r\n", c) >= 0 {
			if start >= 0 {
				words, start = append(words, word{text.String(), line[start:i]}), -1
				text.Reset()
			}
			continue
		}
		if start < 0 {
			start = i
		}
		switch {
		case c == 0:
			return nil, errors.New("the command contains a NUL byte")
		case c == quote:
			quote = 0
		case c == '\\' && quote != '\'':
			if i++; i == len(line) {
				return nil, errors.New("the command ends with a backslash")
			}
			text.WriteByte(line[i])
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		default:
			text.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if start >= 0 {
		words = append(words, word{text.String(), line[start:]})
	}
	return words, nil
}
