package api

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"relay"
	"relay/budget"
	"relay/grant"
	"relay/record"
)

// requestInfo holds the results of the checks of a request, for its handler and the log.
type requestInfo struct {
	answer   *budget.Writer           // writes the answer, whose bytes count in the budget until the client has read them
	id       string                   // request id, in the log and in problems
	header   http.Header              // header lines of the answer
	route    *route                   // nil when nothing matched
	path     func(name string) string // the value of a placeholder in the path
	who      relay.Actor
	held     grant.Held         // the share, on routes with a share token
	event    *relay.Event       // the event of {id} or of the share, with the parts that the route asked for
	attempt  *relay.Attempt     // the attempt of event that {n} names
	alias    *relay.Alias       // the alias of {alias} or ?alias=
	filter   relay.Filter       // filter of a list, from the query
	compared [2]record.Compared // the two sides of a comparison, by ?left= and ?right=
	err      error              // error for the log
	waited   bool               // the call waited for an event or an attempt, so its duration is not counted as a latency
	again    bool               // this is the first of the two calls of an agent that waits (type later); only the second one is logged and counted
	large    *record.Event      // the record of a replay that is too large to be stored as an answer
}

type requestInfoKey struct{}

func requestInfoOf(ctx context.Context) *requestInfo {
	c, _ := ctx.Value(requestInfoKey{}).(*requestInfo)
	return c
}

// ServeHTTP gives the request an id, answers requests that match no route, and logs one
// line when the request is over.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := &budget.Writer{ResponseWriter: w, Budget: s.Budget}
	out := &responseRecorder{ResponseWriter: answer}
	h := out.Header()
	c := &requestInfo{id: "req_" + strings.ToLower(rand.Text()[:20]), header: h, answer: answer}
	answer.Refuse = func(w http.ResponseWriter, err *relay.Error) {
		out.status = relay.Status(err.Code)
		s.writeError(w, c, err)
	}
	began := time.Now()
	defer func() {
		broken := recover()
		if broken == nil || out.status == 0 {
			defer answer.Close()
		} else {
			answer.Abandon()
		}
		if broken != nil && broken != http.ErrAbortHandler {
			s.Log.Error("api handler panicked", "request_id", c.id, "panic", broken, "stack", string(debug.Stack()))
			if out.status == 0 { // otherwise no error can be sent, so the panic continues and net/http closes the connection
				s.writeError(out, c, errors.New("panic, logged above"))
				broken = nil
			}
		}
		if took := time.Since(began); !c.again {
			s.logRequest(r, c, out, took)
			if !errors.Is(c.err, context.Canceled) { // a client that disconnected is no failure of relayd
				s.metrics.record(c, out.status, took)
			}
		}
		if broken != nil {
			panic(http.ErrAbortHandler)
		}
	}()
	h.Set("X-Request-Id", c.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if !isCleanPath(r.URL.Path) {
		s.writeError(out, c, relay.ErrNotFound)
		return
	}
	if r.URL.Path == MCPPath && s.MCP {
		s.serveMCP(out, r, c)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), requestInfoKey{}, c))
	if r.Method == http.MethodGet { // only reads must fit into the budget: the answer to a change is always sent
		r = r.WithContext(answer.WithReads(r.Context()))
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.handleUnmatched(out, r, c)
		return
	}
	s.mux.ServeHTTP(out, r)
}

// isCleanPath reports whether a path is in the form that the mux serves. The mux redirects other paths, but
// the API promises 404 for them.
func isCleanPath(p string) bool {
	tidy := path.Clean(p)
	return strings.HasPrefix(p, "/") && (p == tidy || p == tidy+"/" && tidy != "/")
}

// handleUnmatched answers requests that match no route: 404, or 405 when the path exists
// with other methods. The 405 needs a login unless the route is public.
func (s *server) handleUnmatched(w http.ResponseWriter, r *http.Request, c *requestInfo) {
	var allow []string
	var other *route // a route of the same path with another method
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut} {
		asked := r.WithContext(r.Context())
		asked.Method = method
		if _, pattern := s.mux.Handler(asked); pattern != "" {
			allow, other = append(allow, method), s.routes[pattern]
		}
	}
	if other == nil {
		s.writeError(w, c, relay.ErrNotFound)
		return
	}
	if !other.public {
		if err := s.authenticate(r, c); err != nil {
			s.writeError(w, c, err)
			return
		}
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	s.writeError(w, c, relay.Errorf(relay.CodeMethodNotAllowed, "this path takes %s", strings.Join(allow, ", ")))
}

// withChecks calls h for requests that pass the checks of their route.
func (s *server) withChecks(rt *route, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := requestInfoOf(r.Context())
		c.route, c.path = rt, r.PathValue
		query, err := s.runChecks(rt, r, c)
		if err != nil {
			s.writeError(w, c, err)
			return
		}
		// huma reads a key without a value as "true"; the re-encoded query gives such a key an empty value.
		plain := *r.URL
		plain.RawQuery = query.Encode()
		r.URL = &plain
		h(w, r)
	}
}

func (s *server) runChecks(rt *route, r *http.Request, c *requestInfo) (url.Values, error) {
	if !rt.public {
		if err := s.authenticate(r, c); err != nil {
			return nil, err
		}
		c.who.Via = viaOf(r)
		c.answer.Account = c.who.BufferAccount()
		switch {
		case !c.who.Scopes.Has(rt.scope):
			return nil, relay.Errorf(relay.CodeForbidden, "this needs the scope %s", strings.Join(rt.scope.Names(), " "))
		case rt.unlimitedOnly && c.who.Alias != 0:
			return nil, relay.Errorf(relay.CodeForbidden, "a token limited to one alias may not do this")
		case rt.admin && !c.who.Admin:
			return nil, relay.Errorf(relay.CodeForbidden, "only an admin may do this")
		}
	}
	if rt.resolve != nil {
		if err := rt.resolve(r, c); err != nil {
			return nil, err
		}
	}
	if rt.exists != nil && r.URL.RawQuery != "" {
		if err := rt.exists(r.Context(), c); errors.Is(err, relay.ErrNotFound) {
			return nil, err
		}
	}
	return parseQuery(r)
}

// parseQuery reads the query of the URL. A repeated key is an error, except for those filters of a list that may
// be repeated. The key wait without a value is an error too: its value is probably an unset variable of a script.
func parseQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("query", "the query of the address cannot be read", nil)
	}
	for key, values := range query {
		if len(values) > 1 && key != "json" && key != "q" {
			return nil, invalid("query."+record.SafeTextMax(key, 60), "is there more than once", nil)
		}
		if key == "wait" && values[0] == "" {
			return nil, invalid("query.wait", waitFormat, nil)
		}
	}
	return query, nil
}

// logRequest logs one line about the request. Paths are logged as the route's pattern with the names of event
// and alias, because the path may contain a share token.
func (s *server) logRequest(r *http.Request, c *requestInfo, out *responseRecorder, took time.Duration) {
	attrs := []any{
		slog.String("request_id", c.id),
		slog.String("method", record.SafeTextMax(r.Method, 20)),
		slog.Int("status", out.status),
		slog.Float64("ms", float64(took.Microseconds())/1000),
		slog.Int64("bytes", out.bytes),
		slog.String("from", r.RemoteAddr),
	}
	if c.route != nil {
		attrs = append(attrs, slog.String("route", c.route.path))
	}
	if c.who.Kind != "" {
		attrs = append(attrs, slog.String("actor", record.SafeTextMax(c.who.String(), 100)))
	}
	if c.event != nil {
		attrs = append(attrs, slog.String("event", c.event.ID.String()))
	}
	if c.alias != nil {
		attrs = append(attrs, slog.String("alias", c.alias.Name))
	}
	level := slog.LevelInfo
	if c.err != nil {
		attrs = append(attrs, slog.String("err", record.SafeTextMax(c.err.Error(), 500)))
	}
	switch {
	case errors.Is(c.err, context.Canceled):
	case out.status == http.StatusServiceUnavailable: // a bound was reached, or relayd is stopping
		level = slog.LevelWarn
	case out.status >= http.StatusInternalServerError:
		level = slog.LevelError
	}
	s.Log.Log(r.Context(), level, "api request", attrs...)
}

// responseRecorder passes a response on and remembers its status and size.
type responseRecorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader notes the status.
func (a *responseRecorder) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write counts the written bytes.
func (a *responseRecorder) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (a *responseRecorder) Unwrap() http.ResponseWriter { return a.ResponseWriter }
