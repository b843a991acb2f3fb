package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/grant"
	"relay/record"
)

// route is one operation: the checks before its handler, and its description in the OpenAPI document.
type route struct {
	method, path string // path below Prefix
	id, summary  string
	tag          string
	codes        []int // further statuses; see on

	scope         relay.Scope
	public        bool // no login is required
	admin         bool
	unlimitedOnly bool // refused for tokens that are limited to one alias
	hasBody       bool // the route reads a body; other routes ignore one
	takesSecret   bool // the body has a secret of a sender, so errors quote no value of it

	// resolve finds the alias or event that the path names, before the input is read.
	resolve func(*http.Request, *requestInfo) error
	// exists checks the last name in the path of a route without input. It is called only if a request has a
	// query, which such a route refuses: the error for an unknown name (404) takes precedence over the error for
	// the query (422).
	exists func(context.Context, *requestInfo) error

	// Only raw routes have these fields; typed routes get them from their types.
	query   []*huma.Param
	request map[string]*huma.MediaType
	answers map[string]*huma.Response
}

// on returns a copy of rt for one method and path, given as pattern. codes are further statuses of the route:
// those of its own errors, and the status of success if that is neither 200 nor 204.
func (rt route) on(pattern, id, summary string, codes ...int) route {
	rt.method, rt.path, _ = strings.Cut(pattern, " ")
	rt.id, rt.summary, rt.codes = id, summary, codes
	return rt
}

func (rt *route) pattern() string { return rt.method + " " + Prefix + rt.path }

// found returns a copy of rt that also checks its path: the value of the placeholder param must be the name of an
// item that the function list returns.
func found[T any](rt route, param string, name func(T) string, list func(context.Context, *requestInfo) ([]T, error)) route {
	rt.exists = func(ctx context.Context, c *requestInfo) error {
		all, err := list(ctx, c)
		if err == nil && !slices.ContainsFunc(all, func(x T) bool { return name(x) == c.path(param) }) {
			err = relay.ErrNotFound
		}
		return err
	}
	return rt
}

// noInput is the input of routes without one.
type noInput struct{}

// jsonBody is an input or output of one JSON value.
type jsonBody[T any] struct{ Body T }

// registerTyped registers a route whose input and output huma reads, checks and documents
// by their types.
func registerTyped[I, O any](s *server, rt route, fn func(context.Context, *requestInfo, *I) (*O, error)) {
	s.routes[rt.pattern()] = &rt
	if _, rt.hasBody = reflect.TypeFor[I]().FieldByName("Body"); rt.hasBody {
		rt.codes = append(rt.codes, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	huma.Register(s.huma, *s.operation(&rt), func(ctx context.Context, in *I) (*O, error) {
		c := requestInfoOf(ctx)
		out, err := fn(ctx, c, in)
		if err != nil {
			return nil, s.problem(c, err)
		}
		return out, nil
	})
}

// addJSON registers a typed route that answers with one JSON value.
func addJSON[I, T any](s *server, rt route, fn func(context.Context, *requestInfo, *I) (T, error)) {
	registerTyped(s, rt, func(ctx context.Context, c *requestInfo, in *I) (*jsonBody[T], error) {
		value, err := fn(ctx, c, in)
		return &jsonBody[T]{value}, err
	})
}

// addList registers a typed route that answers with a list, and converts each item with the function form.
func addList[T, R any](s *server, rt route, form func(T) R, read func(context.Context, *requestInfo) ([]T, error)) {
	addJSON(s, rt, func(ctx context.Context, c *requestInfo, _ *noInput) (record.List[R], error) {
		items, err := read(ctx, c)
		return listOf(items, form), err
	})
}

// listOf returns the items of a list, each converted with the function form.
func listOf[T, R any](items []T, form func(T) R) record.List[R] {
	data := make([]R, len(items))
	for i := range items {
		data[i] = form(items[i])
	}
	return record.ListOf(data)
}

// addAction registers a typed route that answers 204, without a body.
func addAction(s *server, rt route, fn func(context.Context, *requestInfo) error) {
	registerTyped(s, rt, func(ctx context.Context, c *requestInfo, _ *noInput) (*struct{}, error) { return nil, fn(ctx, c) })
}

// registerRaw registers a route that reads the request and writes the answer itself. fn may return an error
// only before it has written.
func (s *server) registerRaw(rt route, fn func(http.ResponseWriter, *http.Request, *requestInfo) error) {
	s.routes[rt.pattern()] = &rt
	op := s.operation(&rt)
	for status, answer := range rt.answers {
		op.Responses[status] = answer
	}
	if rt.request != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: rt.request}
	}
	s.huma.OpenAPI().AddOperation(op)
	s.mux.HandleFunc(rt.pattern(), s.withChecks(&rt, func(w http.ResponseWriter, r *http.Request) {
		c := requestInfoOf(r.Context())
		for key := range r.URL.Query() {
			if !slices.ContainsFunc(rt.query, func(p *huma.Param) bool { return p.In == "query" && p.Name == key }) {
				s.writeError(w, c, invalid("query."+record.SafeTextMax(key, 60), "unknown query parameter", nil))
				return
			}
		}
		if err := fn(w, r, c); err != nil {
			s.writeError(w, c, err)
		}
	}))
}

// checkedMux is the mux that huma registers on. It puts the checks of the route before each handler, and
// corrects requests that huma would read differently.
type checkedMux struct {
	*http.ServeMux
	s *server
}

// HandleFunc registers h behind the checks of the pattern's route.
func (m checkedMux) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	rt := m.s.routes[pattern]
	m.ServeMux.HandleFunc(pattern, m.s.withChecks(rt, func(w http.ResponseWriter, r *http.Request) {
		if rt.hasBody {
			body, err := readBody(r.Body)
			if err != nil {
				m.s.writeError(w, requestInfoOf(r.Context()), err)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		r.Header.Del("Accept") // answers are always JSON, but huma would copy the accepted type into their Content-Type
		// huma compares the bytes of the media type, but letter case and spaces before parameters have no
		// meaning in it (RFC 9110, section 8.3.1).
		if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "" {
			r.Header.Set("Content-Type", media)
		}
		h(w, r)
	}))
}

// readBody reads a body to its end. huma would report an incomplete body as an internal error, and would add
// a deadline of its own to that of the server.
func readBody(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	var slow net.Error
	switch {
	case errors.As(err, &slow) && slow.Timeout():
		return nil, &relay.Error{Code: relay.CodeRequestTimeout, Detail: "the body did not come in time", Cause: err}
	case err != nil:
		return nil, &relay.Error{Code: relay.CodeBadRequest, Detail: "the body broke off, or is not framed as HTTP wants it", Cause: err}
	case len(body) > maxBody:
		return nil, relay.Errorf(relay.CodeBodyTooLarge, "the body is larger than 1 MiB")
	}
	return body, nil
}

func (s *server) operation(rt *route) *huma.Operation {
	op := &huma.Operation{
		Method:      rt.method,
		Path:        Prefix + rt.path,
		OperationID: rt.id,
		Summary:     rt.summary,
		Tags:        []string{rt.tag},
		Parameters:  append(pathParams(rt.path), rt.query...),
		// huma checks neither size nor time of the body, because readBody checks the size, and the server has
		// a deadline.
		MaxBodyBytes:    -1,
		BodyReadTimeout: -1,
		Responses:       map[string]*huma.Response{},
		Security:        []map[string][]string{},
	}
	codes := []int{http.StatusInternalServerError, http.StatusUnprocessableEntity, http.StatusServiceUnavailable}
	if !rt.public {
		op.Security = []map[string][]string{{"token": {}}, {"session": {}}}
		codes = append(codes, http.StatusUnauthorized, http.StatusForbidden)
		if names := rt.scope.Names(); len(names) > 0 {
			op.Description = "Scope: " + strings.Join(names, " ") + "."
		}
	}
	if rt.resolve != nil {
		codes = append(codes, http.StatusNotFound)
	}
	if !rt.public || rt.resolve != nil {
		codes = append(codes, http.StatusTooManyRequests) // the number of wrong tokens is limited
	}
	for _, code := range append(codes, rt.codes...) {
		if code < http.StatusBadRequest {
			op.DefaultStatus = code
			continue
		}
		op.Responses[strconv.Itoa(code)] = &huma.Response{
			Description: http.StatusText(code),
			Content:     map[string]*huma.MediaType{record.ProblemType: {Schema: s.schema(record.Problem{})}},
		}
	}
	return op
}

func (s *server) schema(v any) *huma.Schema {
	return s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "")
}

// answer documents an answer of a raw route.
func answer(description, media string, schema *huma.Schema) *huma.Response {
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{media: {Schema: schema}}}
}

// textSchema is the schema of parameters and answers of raw routes.
var textSchema = &huma.Schema{Type: huma.TypeString}

func pathParams(path string) []*huma.Param {
	var list []*huma.Param
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			schema := textSchema
			if name == "n}" {
				one := 1.0
				schema = &huma.Schema{Type: huma.TypeInteger, Minimum: &one}
			}
			list = append(list, &huma.Param{Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: schema})
		}
	}
	return list
}

// writeJSON writes an answer of a raw route.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	if rec, ok := v.(*record.Event); ok {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = record.WriteEvent(w, rec)
		return nil
	}
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	writeRaw(w, status, "application/json", body)
	return nil
}

func writeRaw(w http.ResponseWriter, status int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// resolveEvent resolves {id} as an event with its attempts. Of each body, it reads as many bytes as most says.
func (s *server) resolveEvent(most int) func(*http.Request, *requestInfo) error {
	return func(r *http.Request, c *requestInfo) error {
		id, err := relay.ParseID(r.PathValue("id"))
		if err != nil {
			return relay.ErrNotFound
		}
		c.event, err = s.Events.Event(r.Context(), c.who, id, most)
		return err
	}
}

// resolveRequest resolves {id} as an event without its attempts and without its body.
func (s *server) resolveRequest(r *http.Request, c *requestInfo) error {
	id, err := relay.ParseID(r.PathValue("id"))
	if err != nil {
		return relay.ErrNotFound
	}
	c.event, err = s.Events.Request(r.Context(), c.who, id, 0)
	return err
}

// resolveAlias resolves {alias}.
func (s *server) resolveAlias(r *http.Request, c *requestInfo) (err error) {
	c.alias, err = s.Accounts.Alias(r.Context(), c.who, r.PathValue("alias"))
	return err
}

// maxWait bounds ?wait= of lists and replays.
const maxWait = 60 * time.Second

const waitFormat = "expected a duration from 0s to 60s"

// parseWait reads the value of ?wait=; absent is the result for an empty value.
func parseWait(text string, absent time.Duration) (time.Duration, error) {
	if text == "" {
		return absent, nil
	}
	d, err := relay.ParseDuration(text)
	if err != nil || d > maxWait {
		return 0, invalid("query.wait", waitFormat, shortValue(text))
	}
	return d, nil
}

// parseExpiry returns the time at which a duration such as 7d, from now on, ends. nil means no expiry.
func parseExpiry(text *string) (time.Time, error) {
	if text == nil {
		return time.Time{}, nil
	}
	at, ok := grant.Expiry(*text)
	if !ok {
		return time.Time{}, invalid("body.expiresIn", "expected a duration above 0 such as 12h or 7d, or null for never", shortValue(*text))
	}
	return at, nil
}
