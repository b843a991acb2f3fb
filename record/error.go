package record

import (
	"errors"
	"net/http"

	"relay"
)

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Problem is the form of every error that the relay sends over HTTP (RFC 9457). It is also the
// last line on stderr of a failed command with --json.
type Problem struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail"`
	Code      string         `json:"code"`
	Reason    string         `json:"reason,omitempty" doc:"of event-not-replayable: the replay blocker"`
	RequestID string         `json:"requestId"`
	Errors    []ProblemError `json:"errors" nullable:"false"`
}

// ProblemError describes the mistake in one field of an input.
type ProblemError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
	Value    any    `json:"value,omitempty"`
}

// Error returns the problem as text, so that a client can use it as an error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Code
	}
	return p.Detail
}

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type in which the problem is sent, whatever the client
// asked for.
func (p *Problem) ContentType(string) string { return ProblemType }

// ProblemOf returns the JSON form of an error. An error that is not a *relay.Error, or whose status is 500,
// gets the code internal; causes are left out.
func ProblemOf(err error, requestID string) *Problem {
	e := relay.AsError(err)
	if e == nil {
		e = &relay.Error{Code: relay.CodeInternal}
	}
	status := relay.Status(e.Code)
	if status == http.StatusInternalServerError {
		e = relay.AsError(errors.New(relay.CodeInternal)) // the standard text of an internal error
	}
	p := &Problem{
		Type:      "about:blank",
		Title:     http.StatusText(status),
		Status:    status,
		Detail:    e.Detail,
		Code:      e.Code,
		Reason:    e.Reason,
		RequestID: requestID,
		Errors:    make([]ProblemError, 0, len(e.Fields)),
	}
	for _, f := range e.Fields {
		p.Errors = append(p.Errors, ProblemError(f))
	}
	return p
}
