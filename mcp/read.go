package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/signature"
)

// Largest values of arguments, beyond which a call is refused, and the values that are used if an argument is
// absent.
const (
	maxEvents, usualEvents     = 50, 10
	maxWait, usualWait         = 60, 30 // seconds
	maxPiece, usualPiece       = 64 << 10, 8 << 10
	maxAttempts, usualAttempts = 20, 2
)

// addReading adds the tools that change nothing, if the listing includes them.
func addReading(s *sdk.Server, l listing) {
	reads := func(name, title, text string) tool {
		return tool{name: name, title: title, text: text, scopes: []string{"events:read"}}
	}
	aliases := reads("list_aliases", "List aliases", "List the aliases with their public URL, whether a tunnel is attached (state online), and how many events are queued.")
	aliases.scopes = []string{"aliases:read"}
	add(s, l, aliases, (*tools).listAliases)
	figures := reads("figures", "Count events", "Count the events of an alias by status and state over a span, with latencies.")
	figures.input = figuresSchema
	add(s, l, figures, (*tools).figures)
	add(s, l, reads("list_events", "List events", "List the newest events, newest first, that match all filters. A summary has no headers and no body; show_event has them."), (*tools).listEvents)
	add(s, l, reads("wait_for_event", "Wait for an event", "Wait for the next event that matches all filters and arrives after this call, and return its summary once its delivery has ended. Call it before the action that causes the event; list_events finds events that came earlier. If none comes in time the result is timedOut: call it again to go on waiting."), (*tools).waitForEvent)
	add(s, l, reads("show_event", "Show an event", "Show an event: request, and its newest attempts with the responses of the local server. Bodies are cut to bodyBytes; size has the true size, and get_body the rest."), (*tools).showEvent)
	add(s, l, reads("get_body", "Read a body", "Read a piece of the body of a request or response, or one value of a JSON body. The body is decoded to text as far as it can be."), (*tools).getBody)
	add(s, l, reads("compare", "Compare", "Compare the responses of two attempts (evt_.../1 and evt_.../2), or the requests of two events."), (*tools).compare)
	add(s, l, reads("check_signature", "Check a signature", "Judge the signature of an event by the secrets that the relay holds for the alias, and say why it does not fit."), (*tools).checkSignature)
	add(s, l, reads("export_event", "Export an event", "Export an event as a curl command, HAR, JSON, or a test in Go, JavaScript or Python that sends the request."), (*tools).exportEvent)
}

// hiding is the argument, common to several tools, that shows secrets in received bytes.
type hiding struct {
	Reveal bool `json:"reveal,omitempty" jsonschema:"show secrets (credentials, signatures, tokens) that are masked otherwise"`
}

type noArguments struct{}

// shownAlias is an alias as an agent sees it.
type shownAlias struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	State  string `json:"state"`
	Queued int    `json:"queued"`
}

func (t *tools) listAliases(ctx context.Context, _ noArguments) (any, error) {
	var list record.List[record.Alias]
	if err := t.API.Get(ctx, "/aliases", &list); err != nil {
		return nil, err
	}
	out := []shownAlias{}
	for _, a := range list.Data {
		if t.sees(a.Name) {
			out = append(out, shownAlias{a.Name, a.URL, a.State, a.QueuedEvents})
		}
	}
	return map[string]any{"aliases": out}, nil
}

// sees reports whether the agent may see an alias.
func (t *tools) sees(alias string) bool {
	return len(t.Aliases) == 0 || slices.Contains(t.Aliases, alias)
}

// errUnseen is the error for aliases and events that the agent may not see, and for those that do not
// exist.
var errUnseen = relay.Errorf(relay.CodeNotFound, "there is no such alias or event, or this agent may not see it")

// aliasPath returns the path of an alias that the agent may see.
func (t *tools) aliasPath(name string) (string, error) {
	name = cli.AliasLabel(cli.NormalAlias(name))
	switch {
	case name == "":
		return "", invalid("alias", "name one")
	case !t.sees(name):
		return "", errUnseen
	}
	return "/aliases/" + url.PathEscape(name), nil
}

type figuresIn struct {
	Alias string `json:"alias"`
	Span  any    `json:"span,omitempty"`
}

// figuresSchema describes figuresIn. A span is a number of seconds, as are the other durations of the tools, or
// a text as in the API. A schema that is made from a Go type cannot say that.
var figuresSchema = json.RawMessage(`{"type":"object","additionalProperties":false,"required":["alias"],"properties":{
	"alias":{"type":"string"},
	"span":{"type":["number","string"],"description":"seconds, or a text such as 1h, 24h or 7d; default 1h"}}}`)

func (t *tools) figures(ctx context.Context, in figuresIn) (any, error) {
	path, err := t.aliasPath(in.Alias)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	switch span := in.Span.(type) {
	case string:
		query.Set("span", span)
	case float64:
		if span > maxSeconds {
			return nil, bound("span is at most %d seconds", maxSeconds)
		}
		query.Set("span", duration(span))
	}
	var f record.Figures
	if err := t.API.Get(ctx, path+"/figures?"+query.Encode(), &f); err != nil {
		return nil, err
	}
	f.Parts = slices.DeleteFunc(f.Parts, func(p record.FigurePart) bool { return p.Events == 0 })
	return &f, nil
}

// filters are the arguments that filter a list of events.
type filters struct {
	Alias     string   `json:"alias,omitempty" jsonschema:"name of the alias; all that you may see if absent"`
	Method    string   `json:"method,omitempty"`
	Status    string   `json:"status,omitempty" jsonschema:"such as 404 or 5xx; error = not delivered, or answered with 400 and above"`
	Path      string   `json:"path,omitempty" jsonschema:"prefix of the path"`
	State     string   `json:"state,omitempty" jsonschema:"delivering, queued, delivered, failed, interrupted, canceled, rejected, incomplete or answered"`
	Provider  string   `json:"provider,omitempty" jsonschema:"sender, such as stripe"`
	Type      string   `json:"type,omitempty" jsonschema:"event type, such as invoice.paid; a * at the end matches any ending, as in invoice.*"`
	Pinned    string   `json:"pinned,omitempty" jsonschema:"true or false"`
	Label     string   `json:"label,omitempty"`
	Origin    string   `json:"origin,omitempty" jsonschema:"caller: received from a caller; send: made and sent with Relay"`
	Handshake string   `json:"handshake,omitempty" jsonschema:"name of a registration challenge that relayd has answered"`
	Signature string   `json:"signature,omitempty" jsonschema:"valid, expired, invalid, missing or unchecked"`
	Replayed  string   `json:"replayed,omitempty" jsonschema:"true or false"`
	JSON      []string `json:"json,omitempty" jsonschema:"fields of the JSON body of the request, such as data.object.id=pi_1"`
	Since     string   `json:"since,omitempty" jsonschema:"RFC 3339, or a duration before now such as 2h"`
	Until     string   `json:"until,omitempty" jsonschema:"RFC 3339, or a duration before now such as 1h"`
	Text      []string `json:"q,omitempty" jsonschema:"texts to find in path, headers or body"`
}

// query returns the query of GET /events for the filters, restricted to the aliases that the agent may
// see.
func (t *tools) query(f *filters) (url.Values, error) {
	if f.Alias == "" && len(t.Aliases) == 1 {
		f.Alias = t.Aliases[0]
	}
	switch f.Alias = cli.AliasLabel(cli.NormalAlias(f.Alias)); {
	case f.Alias == "" && len(t.Aliases) > 0:
		return nil, invalid("alias", "name one of %s", strings.Join(t.Aliases, ", "))
	case f.Alias != "" && !t.sees(f.Alias):
		return nil, errUnseen
	}
	plain, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := json.Unmarshal(plain, &values); err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, value := range values {
		switch value := value.(type) {
		case string:
			query.Set(name, value)
		case []any:
			for _, one := range value {
				query.Add(name, one.(string))
			}
		}
	}
	return query, nil
}

type listIn struct {
	filters
	hiding
	Limit  int    `json:"limit,omitempty" jsonschema:"1 to 50; default 10"`
	Cursor string `json:"cursor,omitempty" jsonschema:"nextCursor of the page before"`
}

func (t *tools) listEvents(ctx context.Context, in listIn) (any, error) {
	limit, err := within("limit", in.Limit, usualEvents, maxEvents)
	if err != nil {
		return nil, err
	}
	query, err := t.query(&in.filters)
	if err != nil {
		return nil, err
	}
	query.Set("limit", strconv.Itoa(limit))
	if in.Cursor != "" {
		query.Set("cursor", in.Cursor)
	}
	var page record.Page
	if err := t.API.Get(ctx, "/events?"+query.Encode(), &page); err != nil {
		return nil, err
	}
	for i := range page.Data {
		hide(&page.Data[i], in.Reveal)
	}
	return map[string]any{"events": page.Data, "nextCursor": page.NextCursor}, nil
}

// within returns n, the value of the argument with the given name, or the value usual if n is 0, which means that
// the argument is absent. It returns an error if n is negative or larger than the limit most.
func within(name string, n, usual, most int) (int, error) {
	switch {
	case n == 0:
		return usual, nil
	case n < 0:
		return 0, invalid(name, "expected a number above 0, not %d", n)
	case n > most:
		return 0, bound("%s is at most %d, not %d", name, most, n)
	}
	return n, nil
}

// maxSeconds bounds a number of seconds, so that it is a valid duration. The API has lower limits.
const maxSeconds = 1_000_000_000

// waitWithin returns the duration of n seconds, for the API. n is the value of the argument with the given
// name; 0 means that the argument is absent.
func waitWithin(name string, n float64) (string, error) {
	switch {
	case n == 0:
		n = usualWait
	case n < 0:
		return "", invalid(name, "expected a number above 0, not %v", n)
	case n > maxWait:
		return "", bound("%s is at most %d, not %v", name, maxWait, n)
	}
	return duration(n), nil
}

// duration returns a number of seconds as a duration for the API.
func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).String()
}

func hide(s *record.Summary, reveal bool) {
	if !reveal {
		record.MaskSummary(s)
	}
}

type waitIn struct {
	filters
	hiding
	Timeout float64 `json:"timeout,omitempty" jsonschema:"seconds, at most 60; default 30"`
}

func (t *tools) waitForEvent(ctx context.Context, in waitIn) (any, error) {
	seconds, err := waitWithin("timeout", in.Timeout)
	if err != nil {
		return nil, err
	}
	query, err := t.query(&in.filters)
	if err != nil {
		return nil, err
	}
	query.Set("limit", "1")
	query.Set("wait", seconds)
	var page record.Page
	if err := t.API.Get(ctx, "/events?"+query.Encode(), &page); err != nil {
		return nil, err
	}
	if len(page.Data) == 0 {
		return map[string]any{"timedOut": true}, nil
	}
	e := &page.Data[0] // its delivery has usually ended, because the API answers the waiting call of an agent only then, or at the timeout
	hide(e, in.Reveal)
	return e, ctx.Err()
}

// read reads the record of an event that the agent may see, and masks its secrets unless reveal is
// set.
func (t *tools) read(ctx context.Context, id string, reveal bool) (*record.Event, error) {
	if id == "" {
		return nil, invalid("id", "name an event")
	}
	var e record.Event
	if err := t.API.Get(ctx, "/events/"+url.PathEscape(id), &e); err != nil {
		return nil, err
	}
	if !t.sees(e.Alias) {
		return nil, errUnseen
	}
	if !reveal {
		if err := record.Mask(ctx, &e); err != nil {
			return nil, err
		}
	}
	return &e, nil
}

// check returns an error for an event that the agent may not see.
func (t *tools) check(ctx context.Context, id string) error {
	if len(t.Aliases) == 0 {
		return nil
	}
	_, err := t.read(ctx, id, true)
	return err
}

type showIn struct {
	hiding
	ID        string `json:"id"`
	Attempts  int    `json:"attempts,omitempty" jsonschema:"how many of the newest attempts, 1 to 20; default 2"`
	BodyBytes int    `json:"bodyBytes,omitempty" jsonschema:"bytes of each body, at most 65536; default 8192"`
}

// shownEvent is the record of an event, with its newest attempts first.
type shownEvent struct {
	record.Summary
	Request  *record.Message  `json:"request"`
	Attempts []record.Attempt `json:"attempts"`
}

func (t *tools) showEvent(ctx context.Context, in showIn) (any, error) {
	attempts, err := within("attempts", in.Attempts, usualAttempts, maxAttempts)
	if err != nil {
		return nil, err
	}
	most, err := within("bodyBytes", in.BodyBytes, usualPiece, maxPiece)
	if err != nil {
		return nil, err
	}
	e, err := t.read(ctx, in.ID, in.Reveal)
	if err != nil {
		return nil, err
	}
	return shown(e, attempts, most), nil
}

// shown returns an event with its newest attempts only and with shortened bodies.
func shown(e *record.Event, attempts, most int) *shownEvent {
	out := &shownEvent{Summary: e.Summary, Request: e.Request, Attempts: []record.Attempt{}}
	cut(e.Request.Body, most)
	for _, a := range slices.Backward(e.Attempts) {
		if len(out.Attempts) == attempts {
			break
		}
		if a.Response != nil {
			cut(a.Response.Body, most)
		}
		out.Attempts = append(out.Attempts, a)
	}
	return out
}

// cut shortens the shown text of a body to as many bytes as most says.
func cut(b *record.Body, most int) {
	if b == nil || len(b.Data) <= most {
		return
	}
	if b.Encoding == record.EncodingBase64 {
		most -= most % 4
	}
	b.Data, b.Truncated = strings.ToValidUTF8(b.Data[:most], ""), true
}

type compareIn struct {
	hiding
	Left  string `json:"left" jsonschema:"an event, or an attempt such as evt_.../1"`
	Right string `json:"right" jsonschema:"as left; of the same event or another one"`
	Part  string `json:"part,omitempty" jsonschema:"request or response; default response where an attempt is named"`
}

func (t *tools) compare(ctx context.Context, in compareIn) (any, error) {
	return t.difference(ctx, in.Left, in.Right, in.Part, in.Reveal)
}

// difference compares two events as GET /diff does, with secrets masked unless reveal is set.
func (t *tools) difference(ctx context.Context, left, right, part string, reveal bool) (*record.Diff, error) {
	for _, ref := range []string{left, right} {
		id, _, _ := strings.Cut(ref, "/")
		if err := t.check(ctx, id); err != nil {
			return nil, err
		}
	}
	if reveal {
		var d record.Diff
		query := url.Values{"left": {left}, "right": {right}}
		if part != "" {
			query.Set("part", part)
		}
		err := t.API.Get(ctx, "/diff?"+query.Encode(), &d)
		return &d, err
	}
	if part != "" && part != record.DiffRequest && part != record.DiffResponse {
		return nil, invalid("part", "expected request or response")
	}
	sides := twoSources{}
	was, err := t.side(ctx, left, sides)
	if err != nil {
		return nil, err
	}
	is, err := t.side(ctx, right, sides)
	if err != nil {
		return nil, err
	}
	return record.ReadDiff(ctx, sides, was, is, part)
}

// twoSources provides the bodies of both sides of a comparison.
type twoSources map[relay.ID]record.BodySource

// BodyPart implements record.BodySource.
func (s twoSources) BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error) {
	return s[id].BodyPart(ctx, id, n, i)
}

// side reads one side of a comparison, masks its secrets, and adds the source of its bodies to sources.
func (t *tools) side(ctx context.Context, ref string, sources twoSources) (c record.Compared, err error) {
	id, number, numbered := strings.Cut(ref, "/")
	e, err := t.read(ctx, id, true)
	if err != nil {
		return c, err
	}
	if numbered {
		if c.N, err = strconv.Atoi(number); err != nil || c.N < 1 {
			return c, relay.ErrNotFound
		}
		if err := t.addAttempt(ctx, e, c.N); err != nil {
			return c, err
		}
	}
	if err := record.Mask(ctx, e); err != nil {
		return c, err
	}
	event, source := record.MaskedEvent(e)
	sources[event.ID] = joined{source, sources[event.ID]}
	c.Event = event
	return c, nil
}

// joined reads each body from the first source that has it. If both sides of a comparison are of one event,
// each source may have only the bodies of its own side.
type joined [2]record.BodySource

// BodyPart implements record.BodySource.
func (j joined) BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error) {
	p, err := j[0].BodyPart(ctx, id, n, i)
	if len(p) == 0 && err == nil && j[1] != nil {
		return j[1].BodyPart(ctx, id, n, i)
	}
	return p, err
}

// addAttempt adds attempt n to a record that lacks it.
func (t *tools) addAttempt(ctx context.Context, e *record.Event, n int) error {
	if slices.ContainsFunc(e.Attempts, func(a record.Attempt) bool { return a.Number == n }) {
		return nil
	}
	var list record.List[record.Attempt]
	if err := t.API.Get(ctx, "/events/"+url.PathEscape(e.ID)+"/attempts?limit=1&before="+strconv.Itoa(n+1), &list); err != nil {
		return err
	}
	if len(list.Data) == 0 || list.Data[0].Number != n {
		return relay.ErrNotFound
	}
	e.Attempts = append(e.Attempts, list.Data[0])
	slices.SortFunc(e.Attempts, func(a, b record.Attempt) int { return a.Number - b.Number })
	return nil
}

type idIn struct {
	hiding
	ID string `json:"id"`
}

func (t *tools) checkSignature(ctx context.Context, in idIn) (any, error) {
	var e *record.Event
	if !in.Reveal || len(t.Aliases) > 0 {
		var err error
		if e, err = t.read(ctx, in.ID, true); err != nil {
			return nil, err
		}
	}
	var r signature.Report
	if err := t.API.Decode(ctx, http.MethodPost, "/events/"+url.PathEscape(in.ID)+"/verify", struct{}{}, &r); err != nil {
		return nil, err
	}
	if in.Reveal {
		return &r, nil
	}
	return &r, record.MaskReport(ctx, e, &r)
}

type exportIn struct {
	hiding
	ID     string `json:"id"`
	Format string `json:"format" jsonschema:"curl, har, json, go, js or python"`
}

func (t *tools) exportEvent(ctx context.Context, in exportIn) (any, error) {
	if err := t.check(ctx, in.ID); err != nil {
		return nil, err
	}
	if in.Reveal {
		text, name, err := t.API.Export(ctx, in.ID, in.Format)
		if err != nil {
			return nil, err
		}
		return exported(name, text)
	}
	e, err := t.read(ctx, in.ID, false)
	if err != nil {
		return nil, err
	}
	if in.Format == "json" {
		text, err := json.MarshalIndent(e, "", "  ")
		if err != nil {
			return nil, err
		}
		return exported(e.ID+".json", text)
	}
	event, _ := record.MaskedEvent(e)
	out, err := record.Export(event, in.Format, siteOf(e), t.Version, time.Now(), record.MaxJSON)
	if err != nil {
		return nil, err
	}
	return exported(out.Name, out.Body)
}

// siteOf returns the site to which the URL of an event belongs.
func siteOf(e *record.Event) relay.Site {
	u, err := url.Parse(e.URL)
	if err != nil {
		return relay.Site{}
	}
	host := strings.TrimPrefix(u.Host, e.Alias+".")
	return relay.Site{Base: url.URL{Scheme: u.Scheme, Host: host}, AliasDomain: (&url.URL{Host: host}).Hostname()}
}

// maxExport bounds an exported text, in bytes.
const maxExport = 256 << 10

func exported(name string, text []byte) (any, error) {
	if len(text) > maxExport {
		return nil, bound("the export has %d bytes, and this tool gives at most %d; relay export writes it to a file", len(text), maxExport)
	}
	return map[string]any{"name": name, "text": string(text)}, nil
}
