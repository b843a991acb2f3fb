package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/compose"
	"relay/record"
)

// maxSent bounds the body of a new event that is made from a captured one, in bytes: it is held in memory.
const maxSent = 8 << 20

// messageType is the media type of the exact bytes of one request (RFC 9112, section 10.1).
const messageType = "message/http"

// sendBody is the JSON of a send.
type sendBody struct {
	From    string             `json:"from,omitempty" maxLength:"100" doc:"the event that the new one is made from"`
	Sample  string             `json:"sample,omitempty" maxLength:"200" doc:"name of a sample, one of GET /samples, or last:TYPE for the newest event of a type"`
	Method  string             `json:"method,omitempty" maxLength:"100" doc:"by itself: the request is made from nothing"`
	Path    string             `json:"path,omitempty" doc:"path and query; / where the request is made from nothing"`
	Headers [][]string         `json:"headers,omitempty" doc:"lines as [name, value]; each name replaces the lines that the request has of it"`
	Remove  []string           `json:"removeHeaders,omitempty" doc:"names of lines that are left out"`
	Body    *sentContent       `json:"body,omitempty" doc:"replaces the whole body"`
	Set     map[string]anyJSON `json:"set,omitempty" doc:"replaces members of the JSON body by their paths, such as data.object.status; all other bytes stay"`
	Sign    string             `json:"sign,omitempty" maxLength:"100" doc:"auto, none or the name of a sender; none if absent"`
	Secret  string             `json:"secretId,omitempty" doc:"the secret of the alias that signs; if absent the one whose path prefix is the longest"`
	NewID   bool               `json:"newId,omitempty" doc:"a new delivery id"`
	DryRun  bool               `json:"dryRun,omitempty" doc:"shows the request; nothing is sent or stored"`
}

type sentContent struct {
	Encoding string `json:"encoding" enum:"utf8,base64"`
	Data     string `json:"data"`
}

// anyJSON is any JSON value, with its bytes.
type anyJSON struct{ json.RawMessage }

// Schema implements huma.SchemaProvider.
func (anyJSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// preview is the answer of a dry run.
type preview struct {
	Request  *record.Message `json:"request"`
	Raw      string          `json:"raw" doc:"the exact bytes, in base64"`
	Method   string          `json:"method"`
	Path     string          `json:"path"`
	Changes  []string        `json:"changes" nullable:"false"`
	SignedBy *string         `json:"signedBy"`
}

// sending is one send under way.
type sending struct {
	s     *server
	c     *requestInfo
	body  sendBody
	raw   []byte // of message/http; nil = JSON
	wait  time.Duration
	query url.Values

	request  *compose.Request
	provider string // of a sample
	out      relay.Outgoing
}

// sampleInput selects samples.
type sampleInput struct {
	Provider string `query:"provider" maxLength:"100" doc:"name of a sender; of all if absent"`
}

func (s *server) addSendRoutes() {
	addJSON(s, route{tag: "events"}.on("GET /samples", "list-samples", "Samples of requests that a new event can be made from"),
		func(_ context.Context, _ *requestInfo, in *sampleInput) (record.List[record.Sample], error) {
			return listOf(compose.Samples(in.Provider), func(c *compose.Sample) record.Sample {
				return record.Sample{Name: c.Name(), Provider: c.Provider, Type: c.Type, Source: "relay"}
			}), nil
		})
	param := func(name, in, doc string) *huma.Param {
		return &huma.Param{Name: name, In: in, Description: doc, Schema: textSchema}
	}
	record1, schema := s.schema(record.Event{}), s.schema(sendBody{})
	s.registerRaw(route{
		tag: "events", scope: relay.ScopeEventsSend, resolve: s.resolveAlias, hasBody: true,
		query: []*huma.Param{
			param("wait", "query", "how long to wait for the end of the attempt, 0s to 60s; default 30s"),
			param("Idempotency-Key", "header", "for 24 h, the same key and request return the stored answer"),
			param("sign", "query", "of message/http: auto, none or the name of a sender; default none"),
			param("from", "query", "of message/http: the event that the request was made from"),
		},
		answers: map[string]*huma.Response{
			"200": answer("The attempt ended, with any result; or the request, of a dry run", "application/json", &huma.Schema{AnyOf: []*huma.Schema{record1, s.schema(preview{})}}),
			"202": answer("The attempt is in progress", "application/json", record1),
		},
		request: map[string]*huma.MediaType{"application/json": {Schema: schema}, messageType: {Schema: textSchema}},
	}.on("POST /aliases/{alias}/send", "send-event", "Make a new event and send it once through the tunnel of the alias: from a captured one with changes, from a sample or from nothing; it is never queued",
		http.StatusBadRequest, http.StatusRequestTimeout, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType), s.send)
}

func (s *server) send(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	body, err := readBody(r.Body)
	if err != nil {
		return err
	}
	x := &sending{s: s, c: c, query: r.URL.Query()}
	if x.wait, err = parseWait(x.query.Get("wait"), replayWait); err != nil {
		return err
	}
	if err := x.read(r.Header.Get("Content-Type"), body); err != nil {
		return err
	}
	x.out = relay.Outgoing{Alias: c.alias, TLS: s.Site.Base.Scheme == "https", Sent: relay.Sent{Actor: c.who.String()}}
	x.out.From, _ = netip.ParseAddrPort(r.RemoteAddr)
	if x.body.DryRun {
		return x.preview(w, r)
	}
	c.waited = true
	sum := sha256.Sum256(append([]byte(x.query.Encode()+"\n"), body...))
	return s.runIdempotent(w, r, c, idempotent{
		target: r.Method + " " + r.URL.Path + " " + hex.EncodeToString(sum[:]),
		check:  x.prepare, run: x.run,
		again: func(ctx context.Context, stored []byte) (any, error) {
			id, err := relay.ParseID(string(stored))
			if err != nil {
				return nil, err
			}
			e, err := s.Events.Event(ctx, c.who, id, record.MaxBody)
			return s.eventRecord(c, e, err)
		},
		reference: func() []byte { return []byte(c.event.ID.String()) },
	})
}

// read reads the call and checks its shape.
func (x *sending) read(contentType string, body []byte) error {
	media, _, _ := mime.ParseMediaType(contentType)
	switch media {
	case messageType:
		x.raw = body
		x.body.Sign, x.body.From = x.query.Get("sign"), x.query.Get("from")
		return nil
	case "application/json", "":
	default:
		return relay.Errorf(relay.CodeUnsupportedMediaType, "send the body as application/json or %s", messageType)
	}
	for _, name := range []string{"sign", "from"} {
		if x.query.Has(name) {
			return invalid("query."+name, "this goes with "+messageType+"; in JSON it is a member of the body", nil)
		}
	}
	var shape any
	if err := strictJSON().Unmarshal(body, &shape); err != nil {
		return relay.Errorf(relay.CodeBadRequest, "the body must be one JSON value")
	}
	schemas := x.s.huma.OpenAPI().Components.Schemas
	if object, ok := shape.(map[string]any); ok {
		maps.DeleteFunc(object, func(_ string, v any) bool { return v == nil }) // null = absent
	}
	var found huma.ValidateResult
	huma.Validate(schemas, schemas.SchemaFromRef(x.s.schema(sendBody{}).Ref), huma.NewPathBuffer([]byte("body"), 4), huma.ModeWriteToServer, shape, &found)
	if len(found.Errors) > 0 {
		model := &huma.ErrorModel{Status: http.StatusUnprocessableEntity}
		for _, err := range found.Errors {
			if d, ok := err.(*huma.ErrorDetail); ok {
				model.Errors = append(model.Errors, d)
			}
		}
		return inputError(model)
	}
	if err := json.Unmarshal(body, &x.body); err != nil {
		return invalid("body", "the request is not as this route wants it", nil)
	}
	given := 0
	for _, is := range []bool{x.body.From != "", x.body.Sample != "", x.body.From == "" && x.body.Sample == "" && x.body.Method != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return invalid("body", "give one of from, sample and method: what the request is made from", nil)
	}
	return nil
}

// prepare makes the request, and refuses what cannot be sent now.
func (x *sending) prepare(ctx context.Context) error {
	if err := x.make(ctx); err != nil {
		return err
	}
	states, err := x.s.Deliver.Status(ctx, []relay.Alias{*x.c.alias})
	if err == nil && states[0].State != relay.TunnelOnline {
		err = relay.Errorf(relay.CodeAliasOffline, "%s has no tunnel at the moment; start it and send again: a new event is never queued", x.c.alias.Name)
	}
	return err
}

// make makes the request.
func (x *sending) make(ctx context.Context) (err error) {
	switch {
	case x.raw != nil:
		err = x.parse(ctx)
	case x.body.From != "":
		err = x.from(ctx, x.body.From)
	case x.body.Sample != "":
		err = x.fromSample(ctx)
	default:
		err = x.fromNothing()
	}
	if err == nil && x.raw == nil {
		err = x.edit()
	}
	if err == nil {
		err = x.sign(ctx)
	}
	if err == nil {
		err = x.request.Check(x.s.Sending)
	}
	if err != nil {
		return err
	}
	x.out.Request = x.request.Message()
	if x.out.Sent.MadeFrom != "" {
		x.out.Sent.Changes = x.request.Changes
	}
	return nil
}

// parse reads the exact bytes of a request.
func (x *sending) parse(ctx context.Context) error {
	request, err := compose.Parse(x.raw)
	if err != nil {
		return err
	}
	if x.body.From != "" {
		if err := x.from(ctx, x.body.From); err != nil {
			return err
		}
		request.Changes = compose.Compare(x.request, request)
	}
	x.request = request
	if (x.body.Sign == "" || x.body.Sign == signNone) && request.HasSignature() {
		x.out.Sent.SignedBy = relay.SignedByClient
	}
	return nil
}

// from makes the request from a captured one of the alias.
func (x *sending) from(ctx context.Context, name string) error {
	id, err := relay.ParseID(name)
	if err != nil {
		return relay.ErrNotFound
	}
	e, err := x.s.Events.Request(ctx, x.c.who, id, 0)
	switch {
	case err != nil:
		return err
	case e.AliasID != x.c.alias.ID:
		return relay.ErrNotFound
	case e.Blocker == relay.BlockedRejected, e.Blocker == relay.BlockedIncomplete, e.Request.Body.State != relay.BodyComplete:
		return invalid("body.from", "the request of this event was not kept whole, so that no request can be made from it", nil)
	case e.Request.Body.Size > maxSent:
		return relay.Errorf(relay.CodeBodyTooLarge, "the body of the event has %d bytes; a new event can be made from at most %d", e.Request.Body.Size, maxSent)
	}
	if err := x.c.answer.Hold(3 * e.Request.Body.Size); err != nil {
		return err
	}
	stored, err := record.OpenBody(ctx, x.s.Events, e.ID, 0, &e.Request.Body)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(stored)
	if err != nil {
		return err
	}
	x.request = compose.From(&e.Request, body)
	x.out.ForwardedLines, x.out.Sent.MadeFrom = e.ForwardedLines, e.ID.String()
	return nil
}

// lastPrefix begins the name of a sample that is the newest event of a type.
const lastPrefix = "last:"

// fromSample makes the request from a sample, or from the newest event of a type.
func (x *sending) fromSample(ctx context.Context) error {
	if kind, ok := strings.CutPrefix(x.body.Sample, lastPrefix); ok {
		page, err := x.s.Events.Events(ctx, x.c.who, relay.Filter{Alias: x.c.alias.Name, Type: kind, Limit: 1})
		switch {
		case err != nil:
			return err
		case len(page.Events) == 0:
			return invalid("body.sample", "the alias has no event of this type", shortValue(x.body.Sample))
		}
		return x.from(ctx, page.Events[0].ID.String())
	}
	sample := compose.FindSample(x.body.Sample)
	if sample == nil {
		return invalid("body.sample", "there is no such sample; GET /samples lists all", shortValue(x.body.Sample))
	}
	x.request, x.provider = sample.Request(x.host()), sample.Provider
	return nil
}

// host is the Host of the alias.
func (x *sending) host() string {
	_, host, _ := strings.Cut(x.s.Site.AliasURL(x.c.alias.Name), "://")
	return host
}

// fromNothing makes a request that has only what HTTP needs.
func (x *sending) fromNothing() (err error) {
	path := x.body.Path
	if path == "" {
		path = "/"
	}
	x.request, err = compose.New(x.body.Method, path, x.host())
	return err
}

// edit makes the changes of the call.
func (x *sending) edit() error {
	e := compose.Edit{Method: x.body.Method, Path: x.body.Path, Remove: x.body.Remove, Set: map[string]json.RawMessage{}}
	for path, value := range x.body.Set {
		e.Set[path] = value.RawMessage
	}
	for i, h := range x.body.Headers {
		if len(h) != 2 && len(h) != 3 {
			return invalid(fmt.Sprintf("body.headers[%d]", i), "expected [name, value]", nil)
		}
		value := h[1]
		if len(h) == 3 { // as records have values that are not UTF-8
			exact, err := base64.StdEncoding.DecodeString(h[2])
			if err != nil {
				return invalid(fmt.Sprintf("body.headers[%d]", i), "the third item is not base64", nil)
			}
			value = string(exact)
		}
		e.Header = append(e.Header, compose.Header{Name: h[0], Value: value})
	}
	if b := x.body.Body; b != nil {
		e.Body = []byte(b.Data)
		if b.Encoding == record.EncodingBase64 {
			var err error
			if e.Body, err = base64.StdEncoding.DecodeString(b.Data); err != nil {
				return invalid("body.body.data", "this is not base64", nil)
			}
		}
		e.Body = append([]byte{}, e.Body...) // nil would keep the body
	}
	return x.request.Apply(&e)
}

// signNone as the sign of a call leaves the request as it is, signAuto signs it as its sender does.
const signNone, signAuto = "none", "auto"

// sign gives the request a new delivery id and a new signature, as far as the call wants them.
func (x *sending) sign(ctx context.Context) error {
	sender := x.request.Sender()
	if x.provider != "" {
		sender = x.request.SenderNamed(x.provider)
	}
	if x.body.NewID {
		if err := x.request.Renew(sender); err != nil {
			return err
		}
	}
	switch name := x.body.Sign; {
	case name == "" || name == signNone:
		return nil
	case name == signAuto && sender == nil:
		return relay.Errorf(relay.CodeNoSigningSecret, "the sender of this request is not recognised, so that no secret can be chosen; name one by sign")
	case name != signAuto:
		if sender = x.request.SenderNamed(name); sender == nil {
			return invalid("body.sign", "no sender of that name is known; GET /providers lists all", shortValue(name))
		}
	}
	scheme, err := x.request.Scheme(sender)
	if err != nil {
		return err
	}
	path := x.request.Path()
	secret, err := x.s.Secrets.SigningSecret(ctx, x.c.who, x.c.alias.ID, sender.Name, path, x.body.Secret)
	if err != nil {
		return err
	}
	if err := x.request.Sign(scheme, secret.Value.Reveal(), x.s.Site.AliasURL(x.c.alias.Name)+path, time.Now()); err != nil {
		return err
	}
	x.out.Sent.SignedBy = secret.ID
	return nil
}

// preview shows the request that would be sent.
func (x *sending) preview(w http.ResponseWriter, r *http.Request) error {
	if err := x.s.Limits.Verify(x.c.who); err != nil {
		return err
	}
	if err := x.make(r.Context()); err != nil {
		return err
	}
	m := x.out.Request
	if err := x.c.answer.Hold(4 * int64(len(m.Body.Data))); err != nil {
		return err
	}
	out := preview{
		Request: record.RequestOf(&m), Raw: base64.StdEncoding.EncodeToString(x.request.Wire()), Method: x.request.Method(), Path: x.request.Path(),
		Changes: record.ListOf(x.request.Changes).Data,
	}
	if x.out.Sent.SignedBy != "" {
		out.SignedBy = &x.out.Sent.SignedBy
	}
	return writeJSON(w, http.StatusOK, out)
}

// run sends the request.
func (x *sending) run(ctx context.Context) (int, any, error) {
	var made *relay.Event
	err := x.s.whileValid(ctx, x.c.who, func(ctx context.Context) (err error) {
		made, err = x.s.Deliver.Send(ctx, x.c.who, x.out, x.wait)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	x.c.event = made
	told, full := withoutBodies(made), x.s.replayed(ctx, x.c, made, 1)
	status := replayStatus(full, 1)
	rec, err := x.s.eventRecord(x.c, full, nil)
	if err != nil { // it was sent, and the answer says so, if without bodies
		rec = record.Of(told, x.s.Site, time.Now())
	}
	x.c.event = told
	return status, rec, nil
}
