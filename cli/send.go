package cli

import (
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
	"relay/signature"
)

// sendFlags hold the flags of the command send.
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
	custom  string // JSON of a custom scheme
}

// sendCall is the JSON body of a send; see docs/api.md.
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
		Use: "send ALIAS", Short: "send a new event once: a changed or freshly signed copy, or a sample",
		Long: `Make a new event and send it once through the tunnel of the alias. It starts from an event, from a
sample or from nothing, and keeps every byte that you do not change. A new event is stored, never queued.
To send an event again byte for byte, use replay.`,
		Example: `  relay send stripe-dev --from evt_01k... --sign
  relay send stripe-dev --from evt_01k... --set data.object.status=paid --sign
  relay send stripe-dev --sample stripe/invoice.paid --sign
  relay send stripe-dev -X POST --path /hook -H 'Content-Type: text/plain' --data hello`,
		Args: Takes("alias", 1, 1),
	}
	flags := c.Flags()
	flags.StringVar(&x.call.From, "from", "", "`ID` of the event to start from; or @last, or the last characters of an id")
	flags.StringVar(&x.call.Sample, "sample", "", "`NAME` of a sample to start from (see relay samples), or last:TYPE for the newest event of a type")
	flags.StringVarP(&x.call.Method, "request", "X", "", "`METHOD` of the request")
	flags.StringVar(&x.call.Path, "path", "", "`PATH` and query of the request")
	flags.StringArrayVarP(&x.headers, "header", "H", nil, "set header lines: `'Name: value'` replaces all lines of that name; may be repeated")
	flags.StringArrayVar(&x.call.Remove, "remove-header", nil, "`NAME` of a header line to leave out; may be repeated")
	flags.StringArrayVar(&x.set, "set", nil, "set a field of the JSON body: `PATH=VALUE`, where VALUE is JSON or else a string; may be repeated")
	flags.StringVar(&x.call.Sign, "sign", "", "sign the new request as its sender does, or as the sender `NAME` does")
	flags.Lookup("sign").NoOptDefVal = "auto"
	flags.BoolVar(&x.call.NewID, "new-id", false, "give the request a new delivery id")
	flags.BoolVar(&x.call.DryRun, "dry-run", false, "print the request; send and store nothing")
	flags.StringVar(&x.data, "data", "", "use `BODY` as the body; - reads it from standard input")
	if f.Secrets == nil {
		c.Long += "\n\nWithout --data and --set the body is read from standard input; if that is empty, the body of the event stays."
	} else {
		flags.Lookup("data").Usage += ", @FILE from a file"
		flags.StringVar(&x.curl, "curl", "", "send the request of a curl `COMMAND` (in quotes); files and variables in it are not read")
		flags.StringVar(&x.har, "har", "", "send a request of a HAR file: `FILE#N`, N counts from 1")
		flags.BoolVar(&x.edit, "edit", false, "edit the request in $EDITOR before it is sent; an empty file cancels")
		flags.StringVar(&x.raw, "raw", "", "send the exact bytes of `FILE` as the request")
		flags.StringVar(&x.env, "secret-env", "", "environment variable `NAME` with the secret; relay signs the request on this machine")
		flags.StringVar(&x.file, "secret-file", "", "`FILE` with the secret; relay signs the request on this machine")
		flags.StringVar(&x.custom, "custom", "", "`JSON` of your own scheme, with --sign=custom and a secret (default: that of the alias)")
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

// read reads the flags whose values must be converted for the call.
func (x *sendFlags) read(f *Front, hasData bool) error {
	if x.env != "" && x.file != "" {
		return Usage("--secret-env and --secret-file exclude each other")
	}
	if (x.env != "" || x.file != "") && x.call.Sign == "" {
		return Usage("a secret signs only with --sign")
	}
	if x.custom != "" && (x.call.Sign != signature.CustomName || x.env == "" && x.file == "") {
		return Usage("--custom goes with --sign=custom and a secret of this machine")
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

// setBody sets the body of the call.
func (c *sendCall) setBody(data []byte) {
	c.Body = &sendContent{record.EncodingUTF8, string(data)}
	if !utf8.Valid(data) {
		c.Body = &sendContent{record.EncodingBase64, base64.StdEncoding.EncodeToString(data)}
	}
}

// maxStdin bounds a body that is read from standard input: the relay accepts API requests of at most 1 MiB.
const maxStdin = 1 << 20

// readBody reads the body of the request from the value or file of --data or, over plain ssh, from standard
// input.
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
		case len(data) > 0 || hasData && f.Secrets != nil: // over plain ssh, an empty input leaves the body unchanged
			x.call.setBody(data)
		}
	case hasData && isFile && f.Secrets == nil:
		return Usage("the file %s is on your machine, and this command runs at the relay", name).WithHint("leave --data out and give the file on standard input: < %s", name)
	case hasData && isFile:
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
	if call.From != "" {
		id, err := f.eventID(ctx, api, call.From)
		if err != nil {
			return nil, err
		}
		call.From = id
	}
	var answer json.RawMessage
	raw, err := x.readRaw(f)
	if err == nil {
		err = f.configuredSecret(ctx, api, alias, call, raw, x)
	}
	switch {
	case err != nil:
	case x.raw == "" && x.env == "" && x.file == "" && !x.edit:
		answer, err = api.Call(ctx, http.MethodPost, path, call)
	default:
		answer, err = f.sendExact(ctx, api, &exactSend{alias: alias, call: call, raw: raw, custom: x.custom, edit: x.edit}, x)
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

// lastPrefix begins the name of a sample that stands for the newest event of a type: last:TYPE.
const lastPrefix = "last:"

// sampleOf returns the sender whose built-in sample the call names; "" = none.
func (c *sendCall) sampleOf() string {
	if strings.HasPrefix(c.Sample, lastPrefix) {
		return ""
	}
	sender, _, _ := strings.Cut(c.Sample, "/")
	return sender
}

// composed lets the relay compose the unsigned request of a call. from is the id of the base event; "" =
// none.
func (f *Front) composed(ctx context.Context, api *API, alias string, call sendCall) (r *compose.Request, from string, err error) {
	var made struct {
		Raw      string  `json:"raw"`
		MadeFrom *string `json:"madeFrom"`
	}
	call.Sign, call.DryRun = "", true
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
