package api

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/record"
	"relay/wire"
)

// storedBytes are bytes of an event to download: a body, or a whole HTTP message in its exact bytes.
type storedBytes struct {
	attempt int // 0 = bytes of the received request
	body    *relay.Body
	message *relay.Message
	head    []byte
	name    string
}

func (s *server) addRawRoutes() {
	reads := route{
		tag: "bytes", scope: relay.ScopeEventsRead, resolve: s.resolveRequest, // reads no bodies, because sendBytes reads them in pieces
		answers: map[string]*huma.Response{
			"200": answer("The bytes, as an attachment", "application/octet-stream", &huma.Schema{Type: huma.TypeString, Format: "binary"}),
		},
	}
	add := func(rt route, find func(*requestInfo) (storedBytes, error)) {
		s.registerRaw(rt, func(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
			found, err := find(c)
			if err != nil {
				return err
			}
			return s.sendBytes(w, r, c, &found)
		})
	}
	add(reads.on("GET /events/{id}/request.raw", "get-request-raw", "The exact bytes of the request as received"),
		func(c *requestInfo) (storedBytes, error) {
			m := &c.event.Request
			return storedBytes{0, &m.Body, m, m.Head, "request.raw"}, nil
		})
	add(reads.on("GET /events/{id}/request.body", "get-request-body", "The decoded body of the request"),
		func(c *requestInfo) (storedBytes, error) {
			return storedBytes{0, &c.event.Request.Body, nil, nil, "request.body"}, nil
		})
	reads.resolve = s.resolveAttempt
	add(reads.on("GET /events/{id}/attempts/{n}/request.raw", "get-attempt-request-raw", "The exact bytes sent to the local server"), sentRequest)
	answered := func(rt route, find func(a *relay.Attempt, name string) storedBytes) {
		add(rt, func(c *requestInfo) (storedBytes, error) {
			if !c.attempt.HasResponse {
				return storedBytes{}, record.NoResponse(c.event.ID, c.attempt.N)
			}
			return find(c.attempt, "attempt-"+strconv.Itoa(c.attempt.N)+"-response"), nil
		})
	}
	answered(reads.on("GET /events/{id}/attempts/{n}/response.raw", "get-response-raw", "The exact bytes that the local server sent, interim heads (1xx) first"),
		func(a *relay.Attempt, name string) storedBytes {
			head := append(bytes.Join(a.Interim, nil), a.Response.Head...)
			return storedBytes{a.N, &a.Response.Body, &a.Response, head, name + ".raw"}
		})
	answered(reads.on("GET /events/{id}/attempts/{n}/response.body", "get-response-body", "The decoded body of the response"),
		func(a *relay.Attempt, name string) storedBytes {
			return storedBytes{a.N, &a.Response.Body, nil, nil, name + ".body"}
		})
}

// resolveAttempt resolves {id} and its attempt {n}, which has no leading zeros and no sign.
// Bodies are not read.
func (s *server) resolveAttempt(r *http.Request, c *requestInfo) error {
	if err := s.resolveRequest(r, c); err != nil {
		return err
	}
	n, _ := strconv.Atoi(r.PathValue("n"))
	if n < 1 || n == math.MaxInt || strconv.Itoa(n) != r.PathValue("n") {
		return relay.ErrNotFound
	}
	attempts, err := s.Events.Attempts(r.Context(), c.who, c.event.ID, relay.AttemptPage{Before: n + 1, Limit: 1})
	if err == nil && (len(attempts) == 0 || attempts[0].N != n) {
		err = relay.ErrNotFound
	}
	if err != nil {
		return err
	}
	c.attempt = &attempts[0]
	return nil
}

// sentRequest returns the request as an attempt sent it.
func sentRequest(c *requestInfo) (storedBytes, error) {
	// Identical is set from the first sent byte on, unless the request was incomplete.
	m, a := &c.event.Request, c.attempt
	if a.Identical == nil && (m.Body.State == relay.BodyComplete || a.StartedAt.IsZero()) {
		return storedBytes{}, relay.Errorf(relay.CodeNotFound, "nothing of attempt %d of %s was sent to the local server", a.N, c.event.ID)
	}
	head := m.Head
	if len(a.SentHead) > 0 {
		head = a.SentHead
	}
	return storedBytes{0, &m.Body, m, head, "attempt-" + strconv.Itoa(a.N) + "-request.raw"}, nil
}

// setDownloadHeaders makes a browser save untrusted bytes instead of showing them.
func setDownloadHeaders(w http.ResponseWriter, name string) {
	h := w.Header()
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
}

// sendBytes sends stored bytes piece by piece. If it cannot complete an answer, it closes the connection, so
// that the client notices that a part is missing.
func (s *server) sendBytes(w http.ResponseWriter, r *http.Request, c *requestInfo, b *storedBytes) error {
	if b.body.Stored > relay.InlineBody/4 || len(b.head) > relay.InlineBody/4 {
		if err := c.answer.Hold(2*relay.BodyPart + int64(len(b.head))); err != nil {
			return err
		}
	}
	body, err := record.OpenBody(r.Context(), s.Events, c.event.ID, b.attempt, b.body)
	if err != nil {
		return err
	}
	setDownloadHeaders(w, c.event.ID.String()+"-"+b.name)
	w.Header().Set("Content-Type", "application/octet-stream")
	if b.message == nil && b.body.Parts == 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(b.body.Stored, 10))
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if b.message == nil {
		_, err = io.Copy(w, body)
	} else {
		err = wire.Rebuild(w, b.message, b.head, body)
	}
	if err != nil {
		c.err = err
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (s *server) addExportRoute() {
	formats := make([]any, 0, len(record.ExportFormats))
	for _, f := range record.ExportFormats {
		formats = append(formats, f)
	}
	s.registerRaw(route{
		tag: "events", scope: relay.ScopeEventsRead, resolve: s.resolveExported,
		query: []*huma.Param{{
			Name: "format", In: "query", Required: true, Schema: &huma.Schema{Type: huma.TypeString, Enum: formats},
			Description: "go, js and python are self-contained tests, of requests up to 1 MiB; a form that cannot send exactly what came is refused, and the answer names those that can",
		}},
		answers: map[string]*huma.Response{"200": {Description: "The file", Content: map[string]*huma.MediaType{
			"text/plain":       {Schema: textSchema},
			"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}},
		}}},
	}.on("GET /events/{id}/export", "export-event", "Export an event as a curl command, HAR, JSON, or a test that sends the exact bytes", 409),
		func(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
			format, most := r.URL.Query().Get("format"), s.mostJSON()/2
			if err := c.answer.Hold(record.ExportWeight(c.event, format, most)); err != nil {
				return err
			}
			out, err := record.Export(c.event, format, s.Site, s.Version, time.Now(), most)
			if err != nil {
				return err
			}
			setDownloadHeaders(w, out.Name)
			writeRaw(w, http.StatusOK, out.Type, out.Body)
			return nil
		})
}

// resolveExported resolves {id} as an event with the parts that the export format needs: har and json show
// all attempts that a record has, and all other formats the request and the last response.
func (s *server) resolveExported(r *http.Request, c *requestInfo) error {
	switch r.URL.Query().Get("format") {
	case "har", "json":
		return s.resolveEvent(record.MaxBody)(r, c)
	}
	id, err := relay.ParseID(r.PathValue("id"))
	if err != nil {
		return relay.ErrNotFound
	}
	if c.event, err = s.Events.Request(r.Context(), c.who, id, record.MaxBody); err != nil {
		return err
	}
	c.event.Attempts, err = s.Events.Attempts(r.Context(), c.who, id, relay.AttemptPage{Limit: 1, Answered: true})
	return err
}
