package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"

	"relay"
	"relay/compose"
	"relay/record"
	"relay/signature"
)

// exactSend is a send of exact bytes, which are edited or signed on this machine.
type exactSend struct {
	alias  string
	call   sendCall
	raw    []byte // content of the file of --raw; nil = the relay composes the request from the call
	custom string // JSON of the custom signature scheme to sign with; "" = the custom schemes of the alias
	edit   bool

	secret string           // secret that signs on this machine; "" = none
	base   *compose.Request // the request before it is changed or signed
	from   string           // id of the base event; "" = none
}

// readRaw reads the file of --raw; nil = the flag is not set.
func (x *sendFlags) readRaw(f *Front) ([]byte, error) {
	if x.raw == "" {
		return nil, nil
	}
	raw, err := f.Secrets.ReadFile(x.raw)
	if err != nil {
		return nil, &Error{Exit: ExitFailure, Text: "cannot read the request", Cause: err}
	}
	return raw, nil
}

// parsed parses the exact bytes of a request that the user gave.
func parsed(raw []byte) (*compose.Request, error) {
	r, err := compose.Parse(raw)
	if err != nil {
		return nil, Usage("%s", relay.AsError(err).Detail)
	}
	return r, nil
}

// configuredSecret sets x.env to the environment variable that webhooks.yaml names for the sender, if the
// request is to be signed and no flag names a secret.
func (f *Front) configuredSecret(ctx context.Context, api *API, alias string, call sendCall, raw []byte, x *sendFlags) error {
	if call.Sign == "" || x.env != "" || x.file != "" || f.Secrets == nil || f.Secrets.Configured == nil {
		return nil
	}
	name, err := f.senderOf(ctx, api, alias, call, raw)
	if err != nil {
		return err
	}
	if name == "" { // a custom scheme of the alias may sign the request
		name = signature.CustomName
	}
	x.env, err = f.Secrets.Configured(alias, name)
	return err
}

// senderOf returns the sender whose scheme signs a request; "" = unknown.
func (f *Front) senderOf(ctx context.Context, api *API, alias string, call sendCall, raw []byte) (string, error) {
	if call.Sign != signAuto {
		return call.Sign, nil
	}
	if sample := call.sampleOf(); sample != "" {
		return sample, nil
	}
	if call.From != "" {
		var e record.Event
		if err := api.Get(ctx, "/events/"+url.PathEscape(call.From), &e); err != nil {
			return "", err
		}
		if e.Provider != nil {
			return e.Provider.Name, nil
		}
	}
	var r *compose.Request
	var err error
	if raw != nil {
		r, err = parsed(raw)
	} else { // the composed request may show the sender
		r, _, err = f.composed(ctx, api, alias, call)
	}
	if err != nil {
		return "", err
	}
	if sender := r.Sender(); sender != nil {
		return sender.Name, nil
	}
	return "", nil
}

// signAuto is the value of --sign that stands for the sender of the request.
const signAuto = "auto"

// sendExact sends exact bytes: those of a file, or those that the relay composes from the call. If there is a
// secret, this machine signs them.
func (f *Front) sendExact(ctx context.Context, api *API, s *exactSend, x *sendFlags) (answer json.RawMessage, err error) {
	if s.secret, err = f.Secrets.read(x.env, x.file, secretFileFlag); err != nil {
		return nil, err
	}
	if err := f.compose(ctx, api, s); err != nil {
		return nil, err
	}
	if !s.edit {
		return s.post(ctx, api)
	}
	if s.call.DryRun && s.secret == "" && s.call.Sign != "" {
		return nil, Usage("--edit and --dry-run do not go with a signature of the relay; leave --sign out, or name a secret of this machine")
	}
	err = f.edited(ctx, s.raw, func(raw []byte) (err error) {
		s.raw = raw
		answer, err = s.post(ctx, api)
		return err
	})
	return answer, err
}

// compose sets s.raw, the bytes to send, and s.from. If this machine signs the request, it also sets s.base.
func (f *Front) compose(ctx context.Context, api *API, s *exactSend) (err error) {
	s.from = s.call.From
	made := s.raw == nil
	if made {
		if s.base, s.from, err = f.composed(ctx, api, s.alias, s.call); err != nil {
			return err
		}
		s.raw = s.base.Wire()
	}
	if s.secret == "" {
		return nil // the relay signs, and reads the base event itself
	}
	if s.from != "" && (!made || s.call.changes()) {
		s.base, _, err = f.composed(ctx, api, s.alias, sendCall{From: s.from})
	} else if !made {
		s.base, err = parsed(s.raw)
	}
	return err
}

// changes reports whether a call changes the request of its base event or sample.
func (c *sendCall) changes() bool {
	return c.Method != "" || c.Path != "" || len(c.Headers)+len(c.Remove)+len(c.Set) > 0 || c.Body != nil || c.NewID
}

// post signs the bytes if there is a secret, and sends them.
func (s *exactSend) post(ctx context.Context, api *API) (json.RawMessage, error) {
	query := url.Values{}
	if s.from != "" {
		query.Set("from", s.from)
	}
	if s.secret == "" && s.call.Sign != "" {
		query.Set("sign", s.call.Sign)
		if sample := s.call.sampleOf(); sample != "" && s.call.Sign == signAuto {
			query.Set("sign", sample)
		}
	}
	raw, shown := s.raw, s.raw
	if s.secret != "" {
		signed, err := s.sign(ctx, api)
		if err != nil {
			return nil, err
		}
		raw, shown = signed.Wire(), signed.Shown().Wire()
	}
	if s.call.DryRun {
		return json.Marshal(map[string]string{"raw": base64.StdEncoding.EncodeToString(shown)})
	}
	path := "/aliases/" + url.PathEscape(s.alias) + "/send?" + query.Encode()
	resp, err := api.request(ctx, http.MethodPost, path, raw, "message/http", "")
	if err != nil {
		return nil, err
	}
	return api.readDone(ctx, resp)
}

// edited opens a request in the user's editor and calls use with the edited request.
func (f *Front) edited(ctx context.Context, raw []byte, use func(raw []byte) error) error {
	r, err := parsed(raw)
	if err != nil {
		return err
	}
	text, err := r.Text()
	if err != nil {
		return Usage("%s", relay.AsError(err).Detail)
	}
	canceled := false
	err = f.Edit(ctx, text, func(text []byte) error {
		if canceled = len(bytes.TrimSpace(text)) == 0; canceled {
			return nil
		}
		now, err := r.Edited(text)
		if err != nil {
			return Errorf(ExitFailure, "nothing was sent: %s", relay.AsError(err).Detail)
		}
		return use(now.Wire())
	})
	if err == nil && canceled {
		err = Errorf(ExitFailure, "canceled: the text is empty; nothing was sent")
	}
	return err
}

// sign returns the signed request. It signs on this machine, because s.secret must not leave this machine.
func (s *exactSend) sign(ctx context.Context, api *API) (*compose.Request, error) {
	r, err := parsed(s.raw)
	if err != nil {
		return nil, err
	}
	name := s.call.Sign
	if name == signAuto {
		name = s.call.sampleOf()
	}
	sender, scheme, err := r.SignedAs(s.base, name, s.secret)
	if err == nil && sender == nil && (name == "" || name == signature.CustomName) {
		scheme, err = s.definition(ctx, api, r, name)
	}
	if err != nil {
		return nil, failed(err)
	}
	if scheme == nil {
		return nil, Usage("the sender of this request is not known").WithHint("name it: --sign=stripe")
	}
	var a record.Alias
	if err := api.Get(ctx, "/aliases/"+url.PathEscape(s.alias), &a); err != nil {
		return nil, err
	}
	if err := r.Sign(scheme, s.secret, a.URL+r.Path(), api.Now()); err != nil {
		return nil, failed(err)
	}
	return r, nil
}

// failed converts an error of a package that this program shares with the relay into an *Error.
func failed(err error) error {
	if e, ok := err.(*relay.Error); ok {
		return Errorf(ExitFailure, "%s", e.Detail)
	}
	return err
}

// definition returns the custom scheme to sign with: that of s.custom, or else the custom scheme of the alias
// that fits the request r; nil = none. name is "custom" if the call asked for a custom scheme, else "".
func (s *exactSend) definition(ctx context.Context, api *API, r *compose.Request, name string) (*signature.Scheme, error) {
	custom := s.custom
	if custom == "" {
		kept, err := api.definitions(ctx, s.alias)
		if err != nil && name != "" {
			return nil, err
		}
		found := record.SecretFor(&record.SignedRequest{Head: s.base.Head, Body: s.base.Body}, name, r.Path(), kept)
		switch {
		case found != nil:
			custom = found.Custom
		case name != "":
			return nil, Usage("%s has no scheme of its own that fits", s.alias).WithHint("define it: --custom '{\"header\":\"X-Signature\",\"template\":\"{body}\"}'")
		default:
			return nil, nil
		}
	}
	return compose.CustomScheme(custom)
}

// definitions reads the custom schemes of an alias, without the values of their secrets.
func (a *API) definitions(ctx context.Context, alias string) (relay.OpenSecrets, error) {
	var list record.List[record.SenderSecret]
	if err := a.Get(ctx, "/aliases/"+url.PathEscape(alias)+"/secrets", &list); err != nil {
		return nil, err
	}
	var out relay.OpenSecrets
	for i := range list.Data {
		if s := &list.Data[i]; s.Provider == signature.CustomName {
			x := relay.SenderSecret{ID: s.ID, Provider: s.Provider, Custom: string(s.Custom), CreatedAt: s.CreatedAt.Time}
			if s.Path != nil {
				x.Path = *s.Path
			}
			out = append(out, relay.OpenSecret{SenderSecret: x})
		}
	}
	return out, nil
}
