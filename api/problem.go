package api

import (
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

// limited is a relay.Error that also tells the limit it ran into.
type limited struct {
	refused *relay.Error
	name    string
	rate    Rate
}

// Error is that of the error without the limit.
func (l *limited) Error() string { return l.refused.Error() }

// Unwrap gives the error without the limit.
func (l *limited) Unwrap() error { return l.refused }

// problem gives the outward form of an error and the header lines that go with it.
func (s *server) problem(c *call, err error) (*record.Problem, http.Header) {
	c.err = err
	p := record.ProblemOf(err, c.id)
	h := http.Header{}
	e := relay.AsError(err)
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", wholeSeconds(e.RetryAfter))
	} else if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	var l *limited
	if errors.As(err, &l) {
		h.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%s", l.name, wholeSeconds(e.RetryAfter)))
		h.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%s", l.name, l.rate.N, wholeSeconds(l.rate.Per)))
	}
	return p, h
}

// wholeSeconds rounds up, for nobody should come back too early.
func wholeSeconds(d time.Duration) string {
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

// failure carries a problem through huma to the wire.
type failure struct {
	*record.Problem
	header http.Header
}

// GetHeaders gives the lines that go with the problem.
func (f *failure) GetHeaders() http.Header { return f.header }

// shape is the transformer that gives errors of typed routes their outward form:
// what a handler returned, and what huma itself found in the input.
func (s *server) shape(ctx huma.Context, _ string, v any) (any, error) {
	switch v := v.(type) {
	case *failure:
		return v.Problem, nil
	case *huma.ErrorModel:
		p, _ := s.problem(callOf(ctx.Context()), inputError(v))
		p.Status, p.Title = v.Status, http.StatusText(v.Status)
		return p, nil
	}
	return v, nil
}

// inputError says in the relay's words what huma found.
func inputError(m *huma.ErrorModel) *relay.Error {
	e := &relay.Error{Code: relay.CodeValidationFailed, Detail: "the request is not as this route wants it; see errors"}
	switch m.Status {
	case http.StatusBadRequest:
		e.Code, e.Detail = relay.CodeBadRequest, "the body must be one JSON value"
	case http.StatusRequestTimeout:
		e.Code, e.Detail = relay.CodeRequestTimeout, "the body did not come in time"
	case http.StatusRequestEntityTooLarge:
		e.Code, e.Detail = relay.CodeBodyTooLarge, "the body is larger than 1 MiB"
	case http.StatusUnsupportedMediaType:
		e.Code, e.Detail = relay.CodeUnsupportedMediaType, "send the body as application/json"
	case http.StatusInternalServerError:
		return &relay.Error{Code: relay.CodeInternal, Cause: m}
	}
	for _, d := range m.Errors {
		if d == nil {
			continue
		}
		f := relay.FieldError{Location: d.Location, Message: d.Message}
		if m.Status == http.StatusUnprocessableEntity {
			f.Value = shortValue(d.Value)
		}
		e.Fields = append(e.Fields, f)
	}
	if e.Code == relay.CodeValidationFailed && len(e.Fields) > 0 {
		e.Detail = firstField(e.Fields)
	}
	return e
}

// firstField says what is wrong with the first field and how many more there are.
func firstField(fields []relay.FieldError) string {
	text := fields[0].Location + ": " + fields[0].Message
	if more := len(fields) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more; see errors)", more)
	}
	return text
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
