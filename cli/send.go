package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"relay"
	"relay/compose"
	"relay/record"
)

// sendFlags are what a new event is made of.
type sendFlags struct {
	call    sendCall
	headers []string
	set     []string
	data    string
	raw     string
	curl    string
	har     string
	edit    bool
	env     string
	file    string
}

// sendCall is the JSON of a send, as docs/api.md has it.
type sendCall struct {
	From    string                     `json:"from,omitempty"`
	Sample  string                     `json:"sample,omitempty"`
	Method  string                     `json:"method,omitempty"`
	Path    string                     `json:"path,omitempty"`
	Headers [][]string                 `json:"headers,omitempty"`
	Remove  []string                   `json:"removeHeaders,omitempty"`
	Body    *sendContent               `json:"body,omitempty"`
	Set     map[string]json.RawMessage `json:"set,omitempty"`
	Sign    string                     `json:"sign,omitempty"`
	NewID   bool                       `json:"newId,omitempty"`
	DryRun  bool                       `json:"dryRun,omitempty"`
}

type sendContent struct {
	Encoding string `json:"encoding"`
	Data     string `json:"data"`
}

// sent is the answer of a send: a record, or the preview of a dry run.
type sent struct {
	record.Event
	Raw string `json:"raw"`
}

func (f *Front) samples() *cobra.Command {
	c := &cobra.Command{
		Use: "samples [PROVIDER]", Short: "list the samples that relay send can send",
		Example: "  relay samples\n  relay samples stripe", Args: Takes("provider", 0, 1),
	}
	path := func(args []string) string {
		if len(args) == 0 {
			return "/samples"
		}
		return "/samples?" + url.Values{"provider": {args[0]}}.Encode()
	}
	return Ask(f, c, Calling(http.MethodGet, path, nil), func(w *Printer, s *record.Sample) error { return w.Line(s.Name) })
}

func (f *Front) send() *cobra.Command {
	x := &sendFlags{}
	c := &cobra.Command{
		Use: "send ALIAS", Short: "make a new event and send it once: changed, freshly signed, or from a sample",
		Long: `Make a new event and send it once through the tunnel of the alias. It is made from an event, from a
sample or from nothing; every byte that you do not change stays. A new event is stored, and never queued.
To send an event again byte for byte, use replay.`,
		Example: `  relay send stripe-dev --from evt_01k... --sign
  relay send stripe-dev --from evt_01k... --set data.object.status=paid --sign
  relay send stripe-dev --sample stripe/invoice.paid --sign
  relay send stripe-dev -X POST --path /hook -H 'Content-Type: text/plain' --data hello`,
		Args: Takes("alias", 1, 1),
	}
	flags := c.Flags()
	flags.StringVar(&x.call.From, "from", "", "`ID` of the event that the new one is made from; or @last, or the end of an id")
	flags.StringVar(&x.call.Sample, "sample", "", "`NAME` of a sample (relay samples lists them), or last:TYPE for the newest event of a type")
	flags.StringVarP(&x.call.Method, "request", "X", "", "`METHOD` of the request")
	flags.StringVar(&x.call.Path, "path", "", "`PATH` and query of the request")
	flags.StringArrayVarP(&x.headers, "header", "H", nil, "`'Name: value'`: gives the lines of a name a new value; may be repeated")
	flags.StringArrayVar(&x.call.Remove, "remove-header", nil, "`NAME` of a header line to leave out; may be repeated")
	flags.StringArrayVar(&x.set, "set", nil, "`PATH=VALUE` sets a member of the JSON body: VALUE is JSON, or else a string; may be repeated")
	flags.StringVar(&x.call.Sign, "sign", "", "sign freshly, as the sender of the event does or as `NAME` does")
	flags.Lookup("sign").NoOptDefVal = "auto"
	flags.BoolVar(&x.call.NewID, "new-id", false, "with a new delivery id")
	flags.BoolVar(&x.call.DryRun, "dry-run", false, "print the request, and send and store nothing")
	flags.StringVar(&x.data, "data", "", "`BODY` in place of that of the event; - reads it from standard input")
	if f.Secrets == nil {
		c.Long += "\n\nWithout --data and --set the body is read from standard input; an empty one keeps that of the event."
	} else {
		flags.Lookup("data").Usage += ", @FILE from a file"
		flags.StringVar(&x.curl, "curl", "", "`COMMAND` of cURL whose request is sent, in quotes: files and variables in it are not read")
		flags.StringVar(&x.har, "har", "", "`FILE#N`: request N of a HAR file, counted from 1")
		flags.BoolVar(&x.edit, "edit", false, "edit the request with $EDITOR before it is sent; an empty text cancels")
		flags.StringVar(&x.raw, "raw", "", "`FILE` with the exact bytes of the request")
		flags.StringVar(&x.env, "secret-env", "", "environment variable `NAME` with the secret: the request is signed on this machine")
		flags.StringVar(&x.file, "secret-file", "", "`FILE` with the secret: the request is signed on this machine")
	}
	c.PreRunE = func(*cobra.Command, []string) error { return x.read(f, flags.Changed("data")) }
	return Ask(f, c, func(ctx context.Context, api *API, args []string, _ func(json.RawMessage) error) (json.RawMessage, error) {
		return f.sendEvent(ctx, api, AliasLabel(NormalAlias(args[0])), x)
	}, func(w *Printer, e *sent) error {
		switch {
		case e.Raw != "":
			raw, _ := base64.StdEncoding.DecodeString(e.Raw)
			return w.Text(string(raw), "")
		case len(e.Attempts) == 0 || e.Attempts[0].State == relay.StateDelivering:
			return w.Event(record.EventLine(&e.Summary))
		}
		return w.Event(record.AttemptLine(&e.Summary, &e.Attempts[0]))
	})
}

// read reads the flags that are no member of the call as they are typed.
func (x *sendFlags) read(f *Front, hasData bool) error {
	if x.env != "" && x.file != "" {
		return Usage("--secret-env and --secret-file exclude each other")
	}
	if (x.env != "" || x.file != "") && x.call.Sign == "" {
		return Usage("a secret signs only with --sign")
	}
	if x.raw != "" && (hasData || x.call.Sample != "" || x.call.Method != "" || x.call.Path != "" || len(x.headers)+len(x.set)+len(x.call.Remove) > 0 || x.call.NewID || x.call.DryRun) {
		return Usage("--raw has the whole request; of the other flags it goes with --from and --sign alone")
	}
	if err := x.readPasted(f, hasData); err != nil {
		return err
	}
	if x.raw == "" && x.call.From == "" && x.call.Sample == "" && x.call.Method == "" {
		return Usage("say what to send").WithHint("--from ID, --sample NAME, or -X METHOD for a request from nothing")
	}
	for _, h := range x.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return Usage("-H is 'Name: value', not %q", h)
		}
		x.call.Headers = append(x.call.Headers, []string{name, strings.TrimSpace(value)})
	}
	for _, s := range x.set {
		path, value, ok := strings.Cut(s, "=")
		if !ok {
			return Usage("--set is PATH=VALUE, not %q", s)
		}
		if x.call.Set == nil {
			x.call.Set = map[string]json.RawMessage{}
		}
		if !json.Valid([]byte(value)) {
			text, _ := json.Marshal(value)
			value = string(text)
		}
		x.call.Set[path] = json.RawMessage(value)
	}
	return x.readBody(f, hasData)
}

// setBody makes bytes the body of the call.
func (c *sendCall) setBody(data []byte) {
	c.Body = &sendContent{record.EncodingUTF8, string(data)}
	if !utf8.Valid(data) {
		c.Body = &sendContent{record.EncodingBase64, base64.StdEncoding.EncodeToString(data)}
	}
}

// maxStdin bounds a body that is read from standard input: the relay takes calls of at most 1 MiB.
const maxStdin = 1 << 20

// readBody reads the body of --data, or over plain ssh from standard input.
func (x *sendFlags) readBody(f *Front, hasData bool) error {
	name, isFile := strings.CutPrefix(x.data, "@")
	switch {
	case hasData && x.data == "-", !hasData && f.Secrets == nil && f.Stdin != nil && len(x.set) == 0:
		if f.Stdin == nil {
			return Usage("there is no standard input to read the body from")
		}
		data, err := io.ReadAll(io.LimitReader(f.Stdin, maxStdin+1))
		switch {
		case err != nil:
			return &Error{Exit: ExitFailure, Text: "cannot read the body", Cause: err}
		case len(data) > maxStdin:
			return Errorf(ExitFailure, "the body is larger than 1 MiB, which is the most that a call may have")
		case len(data) > 0 || hasData && f.Secrets != nil: // over plain ssh an empty one keeps the body
			x.call.setBody(data)
		}
	case hasData && isFile && f.Secrets != nil:
		data, err := f.Secrets.ReadFile(name)
		if err != nil {
			return &Error{Exit: ExitFailure, Text: "cannot read the body", Cause: err}
		}
		x.call.setBody(data)
	case hasData:
		x.call.setBody([]byte(x.data))
	}
	return nil
}

// readPasted reads the request of --curl or --har.
func (x *sendFlags) readPasted(f *Front, hasData bool) error {
	if x.edit && f.Edit == nil {
		return Usage("there is no terminal to edit the request at")
	}
	name, made, err := "", (*pasted)(nil), error(nil)
	switch {
	case x.curl != "" && x.har != "":
		return Usage("--curl and --har exclude each other")
	case x.curl == "" && x.har == "":
		return nil
	case x.raw != "" || hasData || x.call.From != "" || x.call.Sample != "" || x.call.Method != "" || x.call.Path != "" || len(x.headers)+len(x.set)+len(x.call.Remove) > 0:
		return Usage("--curl and --har have the whole request; of the other flags they go with --edit, --sign and --dry-run")
	case x.curl != "":
		name = "--curl"
		made, err = readCURL(x.curl)
	default:
		name = "--har"
		file, n := harName(x.har)
		content, failed := f.Secrets.ReadFile(file)
		if failed != nil {
			return &Error{Exit: ExitFailure, Text: "cannot read the HAR file", Cause: failed}
		}
		made, err = readHAR(content, n)
	}
	if err != nil {
		return Usage("%s: %v", name, err)
	}
	x.call.Method, x.call.Path, x.call.Headers, x.call.Remove = made.method, made.path, made.headers, made.remove
	if made.body != nil {
		x.call.setBody(made.body)
	}
	return nil
}

// sendEvent sends a new event.
func (f *Front) sendEvent(ctx context.Context, api *API, alias string, x *sendFlags) (json.RawMessage, error) {
	path, call := "/aliases/"+url.PathEscape(alias)+"/send", x.call
	if call.From != "" && !strings.HasPrefix(call.From, relay.IDPrefix) {
		id, err := api.findEvent(ctx, call.From)
		if err != nil {
			return nil, err
		}
		call.From = id
	}
	var answer json.RawMessage
	err := f.configuredSecret(ctx, api, alias, call, x)
	switch {
	case err != nil:
	case x.raw == "" && x.env == "" && x.file == "" && !x.edit:
		answer, err = api.Call(ctx, http.MethodPost, path, call)
	default:
		answer, err = f.sendExact(ctx, api, alias, path, call, x)
	}
	if err != nil {
		return nil, err
	}
	var e record.Summary
	_ = json.Unmarshal(answer, &e) // the printer reports invalid JSON
	if e.State == relay.StateFailed || e.State == relay.StateInterrupted {
		err = &Error{Exit: ExitFailure}
	}
	return answer, err
}

// lastPrefix begins the name of a sample that is the newest event of a type.
const lastPrefix = "last:"

// sampleOf is the sender of a sample of the relay's own making; "" = none.
func (c *sendCall) sampleOf() string {
	if strings.HasPrefix(c.Sample, lastPrefix) {
		return ""
	}
	sender, _, _ := strings.Cut(c.Sample, "/")
	return sender
}

// composed lets the relay make the request of a call, which is a dry run. from is the event that it is made
// from, "" = none.
func (f *Front) composed(ctx context.Context, api *API, alias string, call sendCall) (r *compose.Request, from string, err error) {
	var made struct {
		Raw      string  `json:"raw"`
		MadeFrom *string `json:"madeFrom"`
	}
	if err := api.Decode(ctx, http.MethodPost, "/aliases/"+url.PathEscape(alias)+"/send", call, &made); err != nil {
		return nil, "", err
	}
	if made.MadeFrom != nil {
		from = *made.MadeFrom
	}
	raw, err := base64.StdEncoding.DecodeString(made.Raw)
	if err == nil {
		r, err = compose.Parse(raw)
	}
	if err != nil {
		return nil, "", &Error{Exit: ExitFailure, Text: "the answer of the relay cannot be read", Cause: err}
	}
	return r, from, nil
}

// configuredSecret takes the environment variable that webhooks.yaml names for the sender of a request that is
// to be signed, unless a secret was named.
func (f *Front) configuredSecret(ctx context.Context, api *API, alias string, call sendCall, x *sendFlags) error {
	if call.Sign == "" || x.env != "" || x.file != "" || f.Secrets == nil || f.Secrets.Configured == nil {
		return nil
	}
	name := call.sampleOf()
	switch {
	case call.Sign != "auto":
		name = call.Sign
	case strings.HasPrefix(call.Sample, lastPrefix): // the relay finds the event, and from its bytes the sender is known
		preview := call
		preview.Sign, preview.DryRun = "", true
		r, _, err := f.composed(ctx, api, alias, preview)
		if err != nil {
			return err
		}
		if sender := r.Sender(); sender != nil {
			name = sender.Name
		}
	case call.From != "":
		var e record.Event
		if err := api.Get(ctx, "/events/"+url.PathEscape(call.From), &e); err != nil {
			return err
		}
		if e.Provider != nil {
			name = e.Provider.Name
		}
	}
	if name == "" {
		return nil
	}
	env, err := f.Secrets.Configured(alias, name)
	x.env = env
	return err
}

// sendExact sends the bytes of a file, or those that the relay makes of the call, signed on this machine if
// there is a secret.
func (f *Front) sendExact(ctx context.Context, api *API, alias, path string, call sendCall, x *sendFlags) (json.RawMessage, error) {
	secret, err := f.Secrets.read(x.env, x.file)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if call.From != "" {
		query.Set("from", call.From)
	}
	if secret == "" && call.Sign != "" {
		query.Set("sign", call.Sign)
	}
	var raw []byte
	if x.raw != "" {
		if raw, err = f.Secrets.ReadFile(x.raw); err != nil {
			return nil, &Error{Exit: ExitFailure, Text: "cannot read the request", Cause: err}
		}
	} else {
		preview := call
		preview.Sign, preview.DryRun = "", true
		r, from, err := f.composed(ctx, api, alias, preview)
		if err != nil {
			return nil, err
		}
		if raw = r.Wire(); from != "" {
			query.Set("from", from)
		}
	}
	if x.edit {
		if raw, err = f.edited(ctx, raw); err != nil {
			return nil, err
		}
		if call.DryRun && secret == "" && call.Sign != "" {
			return nil, Usage("--edit and --dry-run do not go with a signature of the relay; leave --sign out, or name a secret of this machine")
		}
	}
	shown := raw
	if secret != "" {
		signed, err := signHere(ctx, api, alias, raw, call, secret)
		if err != nil {
			return nil, err
		}
		raw, shown = signed.Wire(), signed.Shown().Wire()
	}
	if call.DryRun {
		return json.Marshal(map[string]string{"raw": base64.StdEncoding.EncodeToString(shown)})
	}
	resp, err := api.request(ctx, http.MethodPost, path+"?"+query.Encode(), raw, "message/http", "")
	if err != nil {
		return nil, err
	}
	return api.readDone(ctx, resp)
}

// edited lets the person edit a request.
func (f *Front) edited(ctx context.Context, raw []byte) ([]byte, error) {
	r, err := compose.Parse(raw)
	if err != nil {
		return nil, Usage("%s", relay.AsError(err).Detail)
	}
	text, err := r.Text()
	if err != nil {
		return nil, Usage("%s", relay.AsError(err).Detail)
	}
	if text, err = f.Edit(ctx, text); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, Errorf(ExitFailure, "canceled: the text is empty; nothing was sent")
	}
	now, err := r.Edited(text)
	if err != nil {
		return nil, Errorf(ExitFailure, "nothing was sent: %s", relay.AsError(err).Detail)
	}
	return now.Wire(), nil
}

// signHere signs a request with a secret that does not leave this machine.
func signHere(ctx context.Context, api *API, alias string, raw []byte, call sendCall, secret string) (*compose.Request, error) {
	r, err := compose.Parse(raw)
	if err != nil {
		return nil, Usage("%s", relay.AsError(err).Detail)
	}
	name := call.Sign
	if sample := call.sampleOf(); sample != "" && name == "auto" {
		name = sample
	}
	sender := r.Sender()
	if name != "auto" {
		sender = r.SenderNamed(name)
	}
	if sender == nil {
		return nil, Usage("the sender of this request is not known").WithHint("name it: --sign=stripe")
	}
	scheme, err := r.Scheme(sender)
	if err != nil {
		return nil, Errorf(ExitFailure, "%s", relay.AsError(err).Detail)
	}
	var a record.Alias
	if err := api.Get(ctx, "/aliases/"+url.PathEscape(alias), &a); err != nil {
		return nil, err
	}
	if err := r.Sign(scheme, secret, a.URL+r.Path(), api.Now()); err != nil {
		return nil, Errorf(ExitFailure, "%s", relay.AsError(err).Detail)
	}
	return r, nil
}
