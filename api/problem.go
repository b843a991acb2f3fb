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

// invalid returns an input error of one field. location is such as "query.limit".
func invalid(location, message string, value any) error {
	return &relay.Error{
		Code:   relay.CodeValidationFailed,
		Detail: fmt.Sprintf("%s: %s", location, message),
		Fields: []relay.FieldError{{Location: location, Message: message, Value: value}},
	}
}

// rateLimitError is an error with the limit that was exceeded.
type rateLimitError struct {
	error
	name string
	rate Rate
}

// Unwrap returns the error without the limit.
func (l *rateLimitError) Unwrap() error { return l.error }

// problem returns the problem+json of an error, and sets the header lines that belong to it.
func (s *server) problem(c *requestInfo, err error) *record.Problem {
	if errors.Is(err, context.Canceled) { // the client has disconnected, or relayd is stopping
		err = &relay.Error{Code: relay.CodeStopping, Detail: "the relay is stopping; try again in a moment", RetryAfter: time.Second, Cause: err}
	}
	c.err = err
	p, e := record.ProblemOf(err, c.id), relay.AsError(err)
	if p.Status == http.StatusUnauthorized {
		c.header.Set("WWW-Authenticate", "Bearer")
	}
	if e.RetryAfter > 0 {
		c.header.Set("Retry-After", ceilSeconds(e.RetryAfter))
	} else if p.Status == http.StatusServiceUnavailable {
		c.header.Set("Retry-After", "1")
	}
	var l *rateLimitError
	if errors.As(err, &l) {
		c.header.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%s", l.name, ceilSeconds(e.RetryAfter)))
		c.header.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%s", l.name, l.rate.N, ceilSeconds(l.rate.Per)))
	}
	return p
}

// ceilSeconds rounds a duration up to whole seconds, because a client that waits as told must not be too
// early.
func ceilSeconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

// writeError writes an error as problem+json.
func (s *server) writeError(w http.ResponseWriter, c *requestInfo, err error) {
	p := s.problem(c, err)
	body, err := json.Marshal(p)
	if err != nil { // a value of a field cannot be encoded as JSON
		p.Errors = []record.ProblemError{}
		body, _ = json.Marshal(p)
	}
	writeRaw(w, p.Status, record.ProblemType, body)
}

// transformError converts the errors that huma finds in the input of typed routes to problem+json.
func (s *server) transformError(ctx huma.Context, _ string, v any) (any, error) {
	found, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	c := requestInfoOf(ctx.Context())
	e := inputError(found)
	if c.route != nil && c.route.takesSecret {
		for i := range e.Fields {
			e.Fields[i].Value = nil
		}
	}
	p := s.problem(c, e)
	p.Status, p.Title = found.Status, http.StatusText(found.Status)
	return p, nil
}

// maxFields bounds the invalid fields listed in one answer: a body of 1 MiB can have a
// hundred thousand.
const maxFields = 50

// inputError converts the errors that huma has found in the input of a call to one relay.Error.
func inputError(m *huma.ErrorModel) *relay.Error {
	e := &relay.Error{Code: relay.CodeValidationFailed, Detail: "the request does not match the schema of this route; see errors"}
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
		if m.Status == http.StatusUnprocessableEntity && d.Location != "body" { // the value of the whole body is never shown
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

// shortValue returns a wrong value for an error message if the value is small, because an error must not
// quote a whole body.
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
