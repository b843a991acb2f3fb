package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/record"
)

// invalid is an input error of one field. location is such as "query.limit".
func invalid(location, message string, value any) error {
	return &relay.Error{
		Code:   relay.CodeValidationFailed,
		Detail: fmt.Sprintf("%s: %s", location, message),
		Fields: []relay.FieldError{{Location: location, Message: message, Value: value}},
	}
}

// rateLimitError is a relay.Error that also tells the limit it ran into.
type rateLimitError struct {
	err  *relay.Error
	name string
	rate Rate
}

// Error is that of the error without the limit.
func (l *rateLimitError) Error() string { return l.err.Error() }

// Unwrap gives the error without the limit.
func (l *rateLimitError) Unwrap() error { return l.err }

// problem gives the outward form of an error and the header lines that go with it.
func (s *server) problem(c *requestInfo, err error) (*record.Problem, http.Header) {
	if errors.Is(err, context.Canceled) { // the asker has gone and reads nothing, or we stop
		err = &relay.Error{Code: relay.CodeStopping, Detail: "the relay is stopping; try again in a moment", RetryAfter: time.Second, Cause: err}
	}
	c.err = err
	p := record.ProblemOf(err, c.id)
	h := http.Header{}
	e := relay.AsError(err)
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", ceilSeconds(e.RetryAfter))
	} else if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	var l *rateLimitError
	if errors.As(err, &l) {
		h.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%s", l.name, ceilSeconds(e.RetryAfter)))
		h.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%s", l.name, l.rate.N, ceilSeconds(l.rate.Per)))
	}
	return p, h
}

// ceilSeconds rounds up, so that a client that waits this long is not too early.
func ceilSeconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

func writeProblem(w http.ResponseWriter, p *record.Problem, h http.Header) {
	body, err := json.Marshal(p)
	if err != nil { // a field's value that JSON cannot hold
		p.Errors = []record.ProblemError{}
		body, _ = json.Marshal(p)
	}
	for name, lines := range h {
		w.Header()[name] = lines
	}
	w.Header().Set("Content-Type", record.ProblemType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

// problemError carries a problem through huma to the wire.
type problemError struct {
	*record.Problem
	header http.Header
}

// GetHeaders gives the lines that go with the problem.
func (f *problemError) GetHeaders() http.Header { return f.header }

// transformError is the transformer that gives errors of typed routes their outward form:
// what a handler returned, and what huma itself found in the input.
func (s *server) transformError(ctx huma.Context, _ string, v any) (any, error) {
	switch v := v.(type) {
	case *problemError:
		return v.Problem, nil
	case *huma.ErrorModel:
		p, _ := s.problem(requestInfoOf(ctx.Context()), inputError(v))
		p.Status, p.Title = v.Status, http.StatusText(v.Status)
		return p, nil
	}
	return v, nil
}

// maxFields bounds the invalid fields listed in one answer: a body of 1 MiB can have a
// hundred thousand.
const maxFields = 50

// inputError translates huma's validation errors.
func inputError(m *huma.ErrorModel) *relay.Error {
	e := &relay.Error{Code: relay.CodeValidationFailed, Detail: "the request is not as this route wants it; see errors"}
	switch m.Status {
	case http.StatusBadRequest:
		e.Code, e.Detail = relay.CodeBadRequest, "the body must be one JSON value"
	case http.StatusUnsupportedMediaType:
		e.Code, e.Detail = relay.CodeUnsupportedMediaType, "send the body as application/json"
	case http.StatusInternalServerError:
		return &relay.Error{Code: relay.CodeInternal, Cause: m}
	}
	for _, d := range m.Errors[:min(len(m.Errors), maxFields)] {
		if d == nil {
			continue
		}
		f := relay.FieldError{Location: d.Location, Message: d.Message}
		if m.Status == http.StatusUnprocessableEntity && d.Location != "body" { // never the whole body
			f.Value = shortValue(d.Value)
		}
		e.Fields = append(e.Fields, f)
	}
	if e.Code == relay.CodeValidationFailed && len(e.Fields) > 0 {
		e.Detail = e.Fields[0].Location + ": " + e.Fields[0].Message
		if more := len(m.Errors) - 1; more > 0 {
			e.Detail += fmt.Sprintf(" (and %d more; see errors)", more)
		}
	}
	return e
}

// shortValue keeps a wrong value only where it is small: never a whole body.
func shortValue(v any) any {
	switch v := v.(type) {
	case string:
		if len(v) > 200 {
			return nil
		}
		return v
	case bool, float64, int, json.Number:
		return v
	}
	return nil
}
