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
	"relay/wire"
)

// Secrets finds secrets of senders on this machine. A secret is never an argument, because other programs of
// the machine can read the arguments of a process.
type Secrets struct {
	Getenv   func(name string) string
	ReadFile func(name string) ([]byte, error)
	// Configured returns the name of the environment variable that webhooks.yaml names for an
	// alias and a sender; "" = none.
	Configured func(alias, provider string) (string, error)
}

// verifyQuestion is the request body of a signature check.
type verifyQuestion struct {
	Provider string `json:"provider,omitempty"`
	URL      string `json:"url,omitempty"`
}

func (f *Front) verify() *cobra.Command {
	c := &cobra.Command{
		Use: "verify ID", Short: "check the signature of an event, and say why it fails",
		Long:    "Check the signature of an event as of its arrival, and say why it does not verify." + eventHelp,
		Example: "  relay verify evt_01k...", Args: Takes("event id", 1, 1),
	}
	var q verifyQuestion
	var secretEnv, secretFile, custom string
	c.Flags().StringVar(&q.Provider, "provider", "", "`NAME` of the sender (default: the sender that Relay recognised)")
	c.Flags().StringVar(&q.URL, "url", "", "`URL` that the sender signed (default: that of the event)")
	if f.Secrets != nil {
		c.Long += `

With a secret the signature is computed on this machine, from the exact bytes of the event:
the secret is not sent to the server.`
		c.Example += "\n  relay verify evt_01k... --secret-env STRIPE_WEBHOOK_SECRET"
		c.Flags().StringVar(&secretEnv, "secret-env", "", "environment variable `NAME` that holds the secret (default: named by webhooks.yaml under signing)")
		c.Flags().StringVar(&secretFile, "secret-file", "", "`FILE` that holds the secret; a newline at the end is ignored")
		c.Flags().StringVar(&custom, "custom", "", "`JSON` of your own scheme, with --provider custom and a secret (default: that of the alias)")
		c.PreRunE = func(*cobra.Command, []string) error {
			if custom != "" && (q.Provider != signature.CustomName || secretEnv == "" && secretFile == "") {
				return Usage("--custom goes with --provider custom and a secret of this machine")
			}
			if secretEnv != "" && secretFile != "" {
				return Usage("--secret-env and --secret-file exclude each other")
			}
			return nil
		}
	}
	ask := func(ctx context.Context, api *API, args []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
		answer, err := f.verdict(ctx, api, args[0], q, &record.GivenSecret{Provider: q.Provider, Custom: custom}, secretEnv, secretFile)
		if err != nil {
			return nil, err
		}
		var r signature.Report
		if json.Unmarshal(answer, &r) == nil && r.Verdict.Verdict != signature.Valid {
			err = &Error{Exit: ExitFailure}
		}
		return answer, err
	}
	return Ask(f, c, f.ofEvents(ask), func(w *Printer, r *signature.Report) error { return w.Text(record.VerdictText(r), "") })
}

// verdict lets the relay verify a signature, or verifies it with a secret of this machine.
func (f *Front) verdict(ctx context.Context, api *API, id string, q verifyQuestion, given *record.GivenSecret, secretEnv, secretFile string) (json.RawMessage, error) {
	path := "/events/" + url.PathEscape(id)
	if f.Secrets == nil {
		return api.Call(ctx, http.MethodPost, path+"/verify", q)
	}
	var e record.Event
	if err := api.Get(ctx, path, &e); err != nil {
		return nil, err
	}
	if provider := e.Provider; secretEnv == "" && secretFile == "" && f.Secrets.Configured != nil {
		name := q.Provider
		switch {
		case name == "" && e.Signature != nil && e.Signature.Provider == signature.CustomName: // a custom scheme has verified the event
			name, given.Provider = signature.CustomName, signature.CustomName
		case name == "" && provider != nil:
			name = provider.Name
		case name == "": // a custom scheme of the alias may fit
			name = signature.CustomName
		}
		var err error
		if secretEnv, err = f.Secrets.Configured(e.Alias, name); err != nil {
			return nil, err
		}
	}
	var err error
	if given.Value, err = f.Secrets.read(secretEnv, secretFile, secretFileFlag); err != nil {
		return nil, err
	}
	if given.Value == "" {
		return api.Call(ctx, http.MethodPost, path+"/verify", q)
	}
	r, err := api.signedRequest(ctx, path, &e)
	if err != nil {
		return nil, err
	}
	if q.URL != "" {
		r.URL = q.URL
	}
	var kept relay.OpenSecrets
	if given.Custom == "" && (given.Provider == signature.CustomName || given.Provider == "" && e.Provider == nil) {
		if kept, err = api.definitions(ctx, e.Alias); err != nil && given.Provider != "" {
			return nil, err
		}
	}
	report, _, err := record.ExplainGiven(r, requestTarget(r.Head), given, kept)
	if err != nil {
		return nil, Usage("%s", relay.AsError(err).Detail)
	}
	return json.Marshal(report)
}

// secretFileFlag is the flag of the commands verify and send that names the file of a secret.
const secretFileFlag = "--secret-file"

// read reads the secret from the given variable or file; "" if neither is given. fileFlag is the flag that names
// a file, for the hint of an error.
func (s *Secrets) read(env, file, fileFlag string) (string, error) {
	switch {
	case env != "":
		if secret := s.Getenv(env); secret != "" {
			return secret, nil
		}
		return "", Usage("the environment variable %s is empty", env).WithHint("export %s, or give %s FILE", env, fileFlag)
	case file != "":
		content, err := s.ReadFile(file)
		if err != nil {
			return "", &Error{Exit: ExitFailure, Text: "cannot read the secret", Cause: err}
		}
		content = bytes.TrimSuffix(bytes.TrimSuffix(content, []byte("\n")), []byte("\r"))
		if len(content) == 0 {
			return "", Usage("the file %s is empty", file)
		}
		return string(content), nil
	}
	return "", nil
}

// signedRequest reads the bytes of an event that a signature covers.
func (a *API) signedRequest(ctx context.Context, path string, e *record.Event) (*record.SignedRequest, error) {
	raw, err := a.bytes(ctx, path+"/request.raw")
	if err != nil {
		return nil, err
	}
	r := &record.SignedRequest{Head: raw[:max(wire.HeadEnd(raw, 0), 0)], URL: e.URL, ReceivedAt: e.ReceivedAt.Time}
	for i := range e.Attempts {
		if e.Attempts[i].Number == 1 {
			r.ReceivedAt = e.Attempts[i].ReceivedAt.Time
		}
	}
	if e.Request.Body.State != relay.BodyComplete {
		r.Unread = signature.BodyIncomplete
		return r, nil
	}
	r.Body, err = a.bytes(ctx, path+"/request.body")
	return r, err
}

// bytes reads a whole download.
func (a *API) bytes(ctx context.Context, path string) ([]byte, error) {
	resp, err := a.Request(ctx, http.MethodGet, path, nil, "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(io.LimitReader(resp.Body, a.maxAnswer+1))
	switch {
	case err != nil:
		return nil, &Error{Exit: ExitUnreachable, Text: "the connection broke off", Cause: err}
	case int64(len(all)) > a.maxAnswer:
		return nil, Errorf(ExitFailure, "the answer is too large")
	}
	return all, nil
}

// requestTarget returns the path in the head of a request. The path decides which secret is used.
func requestTarget(head []byte) string {
	_, target, _ := wire.StartLine(head)
	return string(wire.ShownTarget(target))
}
