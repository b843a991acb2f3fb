package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	"relay/outgoing"
	"relay/record"
)

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

// anyJSON is any JSON value; its bytes are kept as the client sent them.
type anyJSON struct{ json.RawMessage }

// Schema implements huma.SchemaProvider.
func (anyJSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// text returns the value, "" where it is absent or null.
func (x anyJSON) text() string {
	if string(x.RawMessage) == "null" {
		return ""
	}
	return string(x.RawMessage)
}

// preview is the answer of a dry run.
type preview struct {
	Request  *record.Message `json:"request"`
	Raw      string          `json:"raw" doc:"the exact bytes, in base64; the secret of a sender that sends the secret itself is masked"`
	Method   string          `json:"method"`
	Path     string          `json:"path"`
	Changes  []string        `json:"changes" nullable:"false"`
	MadeFrom *string         `json:"madeFrom"`
	SignedBy *string         `json:"signedBy"`
}

// sending is one send in progress.
type sending struct {
	s     *server
	c     *requestInfo
	body  sendBody
	raw   []byte // body of a call with message/http; nil = the call is JSON
	wait  time.Duration
	query url.Values
	from  netip.AddrPort // address of the client

	made *outgoing.Made
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
	x.from, _ = netip.ParseAddrPort(r.RemoteAddr)
	if x.body.DryRun {
		return x.preview(w, r)
	}
	c.waited = true
	sum := sha256.Sum256(append([]byte(x.query.Encode()+"\n"), body...))
	return s.runIdempotent(w, r, c, idempotent{
		target: r.Method + " " + r.URL.Path + " " + hex.EncodeToString(sum[:]),
		check:  x.prepare, counts: true, run: x.run,
		again: func(ctx context.Context, stored []byte) (any, error) {
			name, hidden, _ := strings.Cut(string(stored), " ")
			id, err := relay.ParseID(name)
			if err != nil {
				return nil, err
			}
			e, err := s.Events.Event(ctx, c.who, id, record.MaxBody)
			rec, err := s.eventRecord(c, e, err)
			if err == nil {
				maskLine(rec, hidden)
			}
			return rec, err
		},
		reference: func() []byte { // the reference has the event id and the name of the masked header line
			return []byte(strings.TrimSpace(c.event.ID.String() + " " + x.made.Request.Hidden))
		},
	})
}

// read reads the body of the call, and checks JSON against the schema of sendBody.
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
		maps.DeleteFunc(object, func(_ string, v any) bool { return v == nil }) // a member that is null counts as absent
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
		return invalid("body", "the request does not match the schema of this route", nil)
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

// prepare counts the call against its limit, makes the request, and returns an error if it cannot be sent now.
// It counts first, because making a request costs time and memory even if the request is then refused.
func (x *sending) prepare(ctx context.Context) error {
	if limited := x.s.Limits.Replay(x.c.who); limited != nil {
		return cmp.Or(x.maker().Ready(ctx, x.c.alias), limited)
	}
	return x.make(ctx)
}

func (x *sending) maker() outgoing.Maker {
	return outgoing.Maker{Events: x.s.Events, Deliver: x.s.Deliver, Secrets: x.s.Secrets, Site: x.s.Site, Limits: x.s.Sending, Hold: x.c.answer.Hold}
}

// make composes the request.
func (x *sending) make(ctx context.Context) (err error) {
	o := &outgoing.Order{Alias: x.c.alias, From: x.body.From, Sample: x.body.Sample, Raw: x.raw, Sign: x.body.Sign, Secret: x.body.Secret, NewID: x.body.NewID, Send: !x.body.DryRun}
	if o.Edit, err = x.edit(); err != nil {
		return err
	}
	x.made, err = x.maker().Make(ctx, x.c.who, o)
	return err
}

// edit returns the changes to a request that the call asks for.
func (x *sending) edit() (e compose.Edit, err error) {
	e = compose.Edit{Method: x.body.Method, Path: x.body.Path, Remove: x.body.Remove, Set: map[string]json.RawMessage{}}
	for path, value := range x.body.Set {
		e.Set[path] = value.RawMessage
	}
	for i, h := range x.body.Headers {
		if len(h) != 2 && len(h) != 3 {
			return e, invalid(fmt.Sprintf("body.headers[%d]", i), "expected [name, value]", nil)
		}
		value := h[1]
		if len(h) == 3 { // a record gives a value that is not UTF-8 as base64, in a third item
			exact, err := base64.StdEncoding.DecodeString(h[2])
			if err != nil {
				return e, invalid(fmt.Sprintf("body.headers[%d]", i), "the third item is not base64", nil)
			}
			value = string(exact)
		}
		e.Header = append(e.Header, compose.Header{Name: h[0], Value: value})
	}
	if b := x.body.Body; b != nil {
		e.Body = []byte(b.Data)
		if b.Encoding == record.EncodingBase64 {
			if e.Body, err = base64.StdEncoding.DecodeString(b.Data); err != nil {
				return e, invalid("body.body.data", "this is not base64", nil)
			}
		}
		e.Body = append([]byte{}, e.Body...) // nil would mean: leave the body unchanged
	}
	return e, nil
}

// preview shows the request that would be sent.
func (x *sending) preview(w http.ResponseWriter, r *http.Request) error {
	if err := x.s.Limits.Verify(x.c.who); err != nil {
		return err
	}
	if err := x.make(r.Context()); err != nil {
		return err
	}
	m, sent, shown := x.made.Outgoing.Request, x.made.Outgoing.Sent, x.made.Request.Shown()
	if err := x.c.answer.Hold(4 * int64(len(m.Body.Data))); err != nil {
		return err
	}
	m = shown.Message()
	out := preview{
		Request: record.RequestOf(&m), Raw: base64.StdEncoding.EncodeToString(shown.Wire()), Method: x.made.Request.Method(), Path: x.made.Request.Path(),
		Changes: record.ListOf(x.made.Request.Changes).Data,
	}
	if sent.MadeFrom != "" {
		out.MadeFrom = &sent.MadeFrom
	}
	if sent.SignedBy != "" {
		out.SignedBy = &sent.SignedBy
	}
	return writeJSON(w, http.StatusOK, out)
}

// run sends the request.
func (x *sending) run(ctx context.Context) (int, any, error) {
	var made *relay.Event
	out := x.made.Outgoing
	out.From = x.from
	err := x.s.whileValid(ctx, x.c.who, func(ctx context.Context) (err error) {
		made, err = x.s.Deliver.Send(ctx, x.c.who, out, x.wait)
		return err
	})
	if made != nil {
		x.c.event = made
	}
	if err != nil {
		return begunStatus(made, err), nil, err
	}
	told, full := withoutBodies(made), x.s.replayed(ctx, x.c, made, 1)
	status := replayStatus(full, 1)
	rec, err := x.s.eventRecord(x.c, full, nil)
	if err != nil { // the request was sent, so the answer is a success without bodies
		rec = record.Of(told, x.s.Site, time.Now())
	}
	maskLine(rec, x.made.Request.Hidden)
	x.c.event = told
	return status, rec, nil
}

// maskLine masks the header lines with the given name, because they contain a secret of the alias. It does
// nothing if the name is "".
func maskLine(rec *record.Event, name string) {
	for i, h := range rec.Request.Headers {
		if name != "" && strings.EqualFold(h.Name(), name) {
			rec.Request.Headers[i] = record.Header{h.Name(), compose.Masked}
		}
	}
}
