package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"relay"
	"relay/record"
	"relay/signature"
)

// SecretFlags are the flags of a command that adds the secret of a sender. The value is never an argument,
// because other programs of the machine can read the arguments of a process.
type SecretFlags struct {
	Provider, Path    string
	Sign, Generate    bool
	FromEnv, FromFile string
	Custom            string // JSON of the custom signature scheme, for the provider custom

	command *cobra.Command // the command that Add got
}

// Add adds the flags to a command. local means that the command runs on the user's machine, so it may read
// variables and files there.
func (q *SecretFlags) Add(c *cobra.Command, local bool) {
	q.command = c
	c.Flags().StringVar(&q.Provider, "provider", "", "`NAME` of the sender, such as stripe")
	c.Flags().StringVar(&q.Path, "path", "", "only for requests whose path begins with `PREFIX`")
	c.Flags().BoolVar(&q.Sign, "sign", false, "allow relay send to sign with it; use a test-mode secret")
	c.Flags().StringVar(&q.Custom, "custom", "", "`JSON` of your own scheme, with --provider custom: header, template, hash, form, key, prefix, toleranceSeconds")
	c.Flags().BoolVar(&q.Generate, "generate", false, "generate a secret and print it once; enter it at the sender")
	if local {
		c.Flags().StringVar(&q.FromEnv, "from-env", "", "environment variable `NAME` that holds the secret (default: standard input)")
		c.Flags().StringVar(&q.FromFile, "from-file", "", "`FILE` that holds the secret; a newline at the end is ignored")
	}
}

// Check returns a usage error if the flags contradict each other or are incomplete.
func (q *SecretFlags) Check() error {
	sources := 0
	for _, given := range []bool{q.Generate, q.FromEnv != "", q.FromFile != ""} {
		if given {
			sources++
		}
	}
	switch {
	case q.Provider == "":
		return Usage("missing --provider").WithHint("name the sender, such as --provider stripe")
	case q.Custom != "" && !json.Valid([]byte(q.Custom)):
		return Usage("--custom is not JSON").WithHint(`--custom '{"header":"X-Signature","template":"{body}"}'`)
	case sources > 1:
		return Usage("--generate, --from-env and --from-file exclude each other")
	}
	return nil
}

// Value reads or generates the secret.
func (q *SecretFlags) Value(from *Secrets, stdin io.Reader) (string, error) {
	if q.Generate {
		if made := signature.GenerateSecret(q.Provider); made != "" {
			return made, nil
		}
		return "", Usage("no secret can be made for %s: it has none, or is not known", q.Provider).WithHint("the sender gives you its public key, if it has one")
	}
	if from != nil && (q.FromEnv != "" || q.FromFile != "") {
		return from.read(q.FromEnv, q.FromFile, "--from-file")
	}
	if stdin == nil {
		return "", Usage("there is no standard input to read the secret from").WithHint("use --generate, or the dashboard")
	}
	value, err := io.ReadAll(io.LimitReader(stdin, signature.MaxSecret+2))
	if err != nil {
		return "", &Error{Exit: ExitFailure, Text: "cannot read the secret", Cause: err}
	}
	if value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r")); len(value) == 0 {
		return "", Usage("standard input is empty, and the secret is read from there").WithHint("printf %%s \"$SECRET\" | %s ALIAS --provider %s", q.command.CommandPath(), q.Provider)
	}
	return string(value), nil
}

// keptSecret is a secret that was added. The field Secret is set only if this program has generated the value.
type keptSecret struct {
	record.SenderSecret
	Secret string `json:"secret,omitempty"`
}

func (f *Front) secret() *cobra.Command {
	c := &cobra.Command{
		Use: "secret", Short: "secrets of senders: add, list, rm",
		Long:    "Store the secrets with which the senders of an alias sign. relayd checks signatures with them.\nIt stores them encrypted and never shows them again.",
		Example: "  relay secret list stripe-dev\n  relay secret rm sec_9w0…",
		Args:    cobra.ArbitraryArgs, RunE: UnknownCommand, DisableFlagsInUseLine: true,
	}
	c.AddCommand(f.secretAdd(), f.secretList(), f.secretRemove())
	return c
}

func secretsPath(alias string) string {
	return "/aliases/" + url.PathEscape(AliasLabel(NormalAlias(alias))) + "/secrets"
}

func (f *Front) secretAdd() *cobra.Command {
	c := &cobra.Command{
		Use: "add ALIAS --provider NAME", Short: "add the secret of a sender, read from standard input",
		Example: "  relay secret add stripe-dev --provider stripe < secret.txt", Args: Takes("alias", 1, 1),
	}
	var q SecretFlags
	q.Add(c, f.Secrets != nil)
	c.PreRunE = func(*cobra.Command, []string) error { return q.Check() }
	return Ask(f, c, func(ctx context.Context, api *API, args []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
		value, err := q.Value(f.Secrets, f.Stdin)
		if err != nil {
			return nil, err
		}
		body := map[string]any{"provider": q.Provider, "secret": value, "sign": q.Sign}
		if q.Path != "" {
			body["path"] = q.Path
		}
		if q.Custom != "" {
			body["custom"] = json.RawMessage(q.Custom)
		}
		var made keptSecret
		if err := api.Decode(ctx, http.MethodPost, secretsPath(args[0]), body, &made); err != nil {
			return nil, err
		}
		if q.Generate {
			made.Secret = value
		}
		return json.Marshal(made)
	}, func(w *Printer, s *keptSecret) error {
		f.Say("keeps " + SecretLine(&s.SenderSecret))
		if s.Secret == "" {
			return nil
		}
		return w.Line(s.Secret)
	})
}

// SecretLine returns a line that describes a secret.
func SecretLine(s *record.SenderSecret) string {
	line := s.ID + " of " + s.Provider
	if s.Path != nil {
		line += " for " + *s.Path
	}
	if s.Sign {
		line += ", may sign"
	}
	return line
}

func (f *Front) secretList() *cobra.Command {
	c := &cobra.Command{
		Use: "list ALIAS", Short: "list the secrets of an alias, without their values",
		Example: "  relay secret list stripe-dev", Args: Takes("alias", 1, 1),
	}
	return Ask(f, c, Calling(http.MethodGet, func(args []string) string { return secretsPath(args[0]) }, nil),
		func(w *Printer, s *record.SenderSecret) error {
			line := SecretLine(s) + ", added " + record.ZonedTime(s.CreatedAt.Time) + " by " + s.CreatedBy
			if s.LastValidAt != nil {
				line += ", last valid " + record.ZonedTime(s.LastValidAt.Time)
			}
			return w.Line(line)
		})
}

func (f *Front) secretRemove() *cobra.Command {
	c := &cobra.Command{
		Use: "rm ID", Short: "remove the secret of a sender",
		Example: "  relay secret rm sec_9w0…", Args: Takes("id of a secret", 1, 1),
	}
	return Ask(f, c, func(ctx context.Context, api *API, args []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
		path, err := api.findSecret(ctx, args[0])
		if err != nil {
			return nil, err
		}
		_, err = api.Call(ctx, http.MethodDelete, path, nil)
		if err == nil {
			f.Say("removed " + args[0])
		}
		return nil, err
	}, func(*Printer, *struct{}) error { return nil })
}

// findSecret searches the secrets of all aliases, and returns the API path of the secret with this id.
func (a *API) findSecret(ctx context.Context, id string) (string, error) {
	var aliases record.List[record.Alias]
	if err := a.Get(ctx, "/aliases", &aliases); err != nil {
		return "", err
	}
	for _, alias := range aliases.Data {
		var secrets record.List[record.SenderSecret]
		if err := a.Get(ctx, secretsPath(alias.Name), &secrets); err != nil && !HasCode(err, relay.CodeNotFound) {
			return "", err
		}
		for _, s := range secrets.Data {
			if s.ID == id {
				return secretsPath(alias.Name) + "/" + url.PathEscape(id), nil
			}
		}
	}
	return "", Errorf(ExitNotFound, "no alias of yours has a secret %s", id).WithHint("secret list ALIAS shows those of an alias")
}
