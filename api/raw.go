package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/wire"
)

func (s *server) addRawRoutes() {
	add := func(path, id, summary string, fn func(http.ResponseWriter, *http.Request, *requestInfo) error) {
		s.registerRaw(route{
			method: http.MethodGet, path: path, id: id, tag: "bytes", summary: summary,
			scope: relay.ScopeEventsRead, resolve: s.resolveEvent(0), // bodies come piece by piece
			answers: map[string]*huma.Response{"200": {
				Description: "The bytes, as an attachment",
				Content:     map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}},
			}},
		}, fn)
	}
	add("/events/{id}/request.raw", "get-request-raw", "The exact bytes of the request as received", s.requestRaw)
	add("/events/{id}/request.body", "get-request-body", "The decoded body of the request", s.requestBody)
	add("/events/{id}/attempts/{n}/request.raw", "get-attempt-request-raw", "The exact bytes sent to the local server", s.attemptRequestRaw)
	add("/events/{id}/attempts/{n}/response.raw", "get-response-raw", "The exact bytes that the local server sent, interim heads (1xx) first", s.responseRaw)
	add("/events/{id}/attempts/{n}/response.body", "get-response-body", "The decoded body of the response", s.responseBody)
}

func (s *server) requestRaw(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	return s.sendWire(w, r, c, 0, &c.event.Request, c.event.Request.Head, "request.raw")
}

func (s *server) requestBody(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	return s.sendBody(w, r, c, 0, &c.event.Request.Body, "request.body")
}

func (s *server) attemptRequestRaw(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	a, err := attemptOf(r, c)
	if err != nil {
		return err
	}
	// Identical is known from the first byte on, but for requests that were not whole.
	whole := c.event.Request.Body.State == relay.BodyComplete
	if a.Identical == nil && (whole || a.StartedAt.IsZero()) {
		return relay.ErrNotFound
	}
	head := c.event.Request.Head
	if len(a.SentHead) > 0 {
		head = a.SentHead
	}
	return s.sendWire(w, r, c, 0, &c.event.Request, head, "attempt-"+strconv.Itoa(a.N)+"-request.raw")
}

func (s *server) responseRaw(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	a, err := answeredAttempt(r, c)
	if err != nil {
		return err
	}
	head := append(bytes.Join(a.Interim, nil), a.Response.Head...)
	return s.sendWire(w, r, c, a.N, &a.Response, head, "attempt-"+strconv.Itoa(a.N)+"-response.raw")
}

func (s *server) responseBody(w http.ResponseWriter, r *http.Request, c *requestInfo) error {
	a, err := answeredAttempt(r, c)
	if err != nil {
		return err
	}
	return s.sendBody(w, r, c, a.N, &a.Response.Body, "attempt-"+strconv.Itoa(a.N)+"-response.body")
}

func attemptOf(r *http.Request, c *requestInfo) (*relay.Attempt, error) {
	text := r.PathValue("n")
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text {
		return nil, relay.ErrNotFound
	}
	for i := range c.event.Attempts {
		if c.event.Attempts[i].N == n {
			return &c.event.Attempts[i], nil
		}
	}
	return nil, relay.ErrNotFound
}

func answeredAttempt(r *http.Request, c *requestInfo) (*relay.Attempt, error) {
	a, err := attemptOf(r, c)
	if err == nil && !a.HasResponse {
		err = relay.ErrNotFound
	}
	return a, err
}

// setBytesHeaders is sandbox for bytes of an event.
func setBytesHeaders(w http.ResponseWriter, c *requestInfo, name string) {
	setDownloadHeaders(w, c.event.ID.String()+"-"+name)
	w.Header().Set("Content-Type", "application/octet-stream")
}

// setDownloadHeaders makes a browser save untrusted bytes and do nothing else with them.
func setDownloadHeaders(w http.ResponseWriter, name string) {
	h := w.Header()
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
}

// sendWire rebuilds a message as it crossed the wire. n is 0 for the request, else
// the attempt.
func (s *server) sendWire(w http.ResponseWriter, r *http.Request, c *requestInfo, n int, m *relay.Message, head []byte, name string) error {
	pieces, err := s.bodyReader(r.Context(), c.event.ID, n, &m.Body)
	if err != nil {
		return err
	}
	setBytesHeaders(w, c, name)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	s.abortAnswer(c, wire.Rebuild(m, head, pieces, writeTo(w)))
	return nil
}

func (s *server) sendBody(w http.ResponseWriter, r *http.Request, c *requestInfo, n int, b *relay.Body, name string) error {
	pieces, err := s.bodyReader(r.Context(), c.event.ID, n, b)
	if err != nil {
		return err
	}
	setBytesHeaders(w, c, name)
	if b.Parts == 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(b.Stored, 10))
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	write := writeTo(w)
	for {
		piece, err := pieces()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = write(piece)
		}
		s.abortAnswer(c, err)
	}
}

// abortAnswer breaks the connection of an answer that cannot be completed, so that the
// client does not take the part for the whole.
func (s *server) abortAnswer(c *requestInfo, err error) {
	if err != nil {
		c.err = err
		panic(http.ErrAbortHandler)
	}
}

func writeTo(w http.ResponseWriter) func([]byte) error {
	return func(p []byte) error {
		_, err := w.Write(p)
		return err
	}
}

// bodyReader gives a stored body piece by piece, io.EOF at its end. The first part is
// read at once, so that a store that is gone is still an answer of its own.
func (s *server) bodyReader(ctx context.Context, id relay.ID, n int, b *relay.Body) (func() ([]byte, error), error) {
	var first []byte
	i, parts := 0, b.Parts
	if b.Stored > 0 {
		var err error
		if first, err = s.Events.BodyPart(ctx, id, n, 0); err != nil {
			return nil, err
		}
		parts = max(parts, 1) // one that is stored with its row is part 0
	}
	return func() ([]byte, error) {
		i++
		switch {
		case i > parts:
			return nil, io.EOF
		case i == 1:
			return first, nil
		}
		return s.Events.BodyPart(ctx, id, n, i-1)
	}, nil
}
