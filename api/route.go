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
	"relay/record"
)

// route is one operation: what is checked before its handler, and what the OpenAPI
// document says about it.
type route struct {
	method, path string // path below Prefix
	id, summary  string
	tag          string
	status       int // of success; 0 = huma's choice

	scope         relay.Scope
	public        bool // nobody is asked who they are
	admin         bool
	unlimitedOnly bool // not for tokens limited to one alias
	hasBody       bool // the route reads a body; other routes ignore one

	// resolve finds what the path names, before the input is looked at.
	resolve func(*http.Request, *requestInfo) error
	errors  []int // documented beside those that follow from the above

	// Of plain routes only; typed ones have it from their types.
	query   []*huma.Param
	answers map[string]*huma.Response
}

func (rt *route) pattern() string { return rt.method + " " + Prefix + rt.path }

// registerTyped registers a route whose input and output huma reads, checks and documents
// by their types.
func registerTyped[I, O any](s *server, rt route, fn func(context.Context, *requestInfo, *I) (*O, error)) {
	s.routes[rt.pattern()] = &rt
	if _, rt.hasBody = reflect.TypeFor[I]().FieldByName("Body"); rt.hasBody {
		rt.errors = append(rt.errors, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	op := s.operation(&rt)
	huma.Register(s.huma, *op, func(ctx context.Context, in *I) (*O, error) {
		c := requestInfoOf(ctx)
		out, err := fn(ctx, c, in)
		if err != nil {
			p, h := s.problem(c, err)
			return nil, &problemError{Problem: p, header: h}
		}
		return out, nil
	})
}

// registerRaw registers a route that reads the request and writes the answer itself. fn
// may only fail before it has written.
func (s *server) registerRaw(rt route, fn func(http.ResponseWriter, *http.Request, *requestInfo) error) {
	s.routes[rt.pattern()] = &rt
	op := s.operation(&rt)
	op.Parameters = append(pathParams(rt.path), rt.query...)
	for status, answer := range rt.answers {
		op.Responses[status] = answer
	}
	s.huma.OpenAPI().AddOperation(op)
	known := make([]string, 0, len(rt.query))
	for _, p := range rt.query {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	s.mux.HandleFunc(rt.pattern(), s.withChecks(&rt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := requestInfoOf(r.Context())
		err := checkQueryKeys(r, known)
		if err == nil {
			err = fn(w, r, c)
		}
		if err != nil {
			s.writeError(w, c, err)
		}
	})))
}

func checkQueryKeys(r *http.Request, known []string) error {
	for key := range r.URL.Query() {
		if !slices.Contains(known, key) {
			return invalid("query."+record.SafeTextMax(key, 60), "unknown query parameter", nil)
		}
	}
	return nil
}

// checkedMux is the mux that huma registers on: each of its handlers gets the guard.
type checkedMux struct{ s *server }

// HandleFunc puts the guard of the pattern's route before h.
func (g checkedMux) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	rt := g.s.routes[pattern]
	g.s.mux.HandleFunc(pattern, g.s.withChecks(rt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rt.hasBody {
			body, err := readBody(r.Body)
			if err != nil {
				g.s.writeError(w, requestInfoOf(r.Context()), err)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		r.Header.Del("Accept") // answers are always JSON; huma would label them with the accepted type
		// Media types have no case, and may have spaces before their parameters (RFC 9110,
		// section 8.3.1); huma compares bytes.
		if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "" {
			r.Header.Set("Content-Type", media)
		}
		h(w, r)
	})))
}

// readBody reads a body to its end. huma would report a body that breaks off as an
// internal error, and would add a deadline of its own to that of the server.
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

// ServeHTTP is there for huma's interface.
func (g checkedMux) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.s.mux.ServeHTTP(w, r) }

func (s *server) operation(rt *route) *huma.Operation {
	op := &huma.Operation{
		Method:        rt.method,
		Path:          Prefix + rt.path,
		OperationID:   rt.id,
		Summary:       rt.summary,
		Tags:          []string{rt.tag},
		DefaultStatus: rt.status,
		// readBody has seen to both.
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
		codes = append(codes, http.StatusTooManyRequests) // a secret is shown
	}
	for _, code := range append(codes, rt.errors...) {
		op.Responses[strconv.Itoa(code)] = s.problemResponse(code)
	}
	return op
}

func (s *server) problemResponse(code int) *huma.Response {
	return &huma.Response{
		Description: http.StatusText(code),
		Content:     map[string]*huma.MediaType{record.ProblemType: {Schema: s.schema(record.Problem{})}},
	}
}

func (s *server) schema(v any) *huma.Schema {
	return s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "")
}

// jsonAnswer documents a JSON answer of a plain route.
func (s *server) jsonAnswer(description string, v any) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{"application/json": {Schema: s.schema(v)}},
	}
}

func pathParams(path string) []*huma.Param {
	var list []*huma.Param
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			schema := &huma.Schema{Type: "string"}
			if name == "n}" {
				one := 1.0
				schema = &huma.Schema{Type: "integer", Minimum: &one}
			}
			list = append(list, &huma.Param{Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: schema})
		}
	}
	return list
}

// writeJSON writes an answer of a plain route.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	writeRaw(w, status, body)
	return nil
}

func writeRaw(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// resolveEvent resolves {id}; of each body at most most bytes are read.
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

// resolveAlias resolves {alias}.
func (s *server) resolveAlias(r *http.Request, c *requestInfo) (err error) {
	c.alias, err = s.Accounts.Alias(r.Context(), c.who, r.PathValue("alias"))
	return err
}

// resolveQueryAlias resolves ?alias=, which may be left out.
func (s *server) resolveQueryAlias(r *http.Request, c *requestInfo) (err error) {
	if name := r.URL.Query().Get("alias"); name != "" {
		c.alias, err = s.Accounts.Alias(r.Context(), c.who, name)
	}
	return err
}

// maxWait bounds ?wait= of lists and replays.
const maxWait = 60 * time.Second

const waitFormat = "expected a duration from 0s to 60s"

// parseWait reads ?wait=.
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

// parseExpiry reads a time to live; nil is never.
func parseExpiry(text *string) (time.Time, error) {
	if text == nil {
		return time.Time{}, nil
	}
	d, err := relay.ParseDuration(*text)
	if err != nil || d <= 0 || d > 100*365*24*time.Hour {
		return time.Time{}, invalid("body.expiresIn", "expected a duration above 0 such as 12h or 7d, or null for never", shortValue(*text))
	}
	return time.Now().Add(d), nil
}
