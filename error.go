package relay

import (
	"errors"
	"fmt"
	"time"
)

// Error is the only type of error that is shown to callers and users. Code is stable and documented.
// Detail is one sentence that says what happened and what to do next. Cause is for the log and is never
// sent to a client.
type Error struct {
	Code       string
	Detail     string
	Reason     string        // why the event cannot be replayed (a replay blocker); set with CodeEventNotReplayable
	RetryAfter time.Duration // sent as Retry-After in seconds, rounded up; 0 = not sent
	Fields     []FieldError  // the wrong fields; set with CodeValidationFailed
	Unknown    bool          // the change may have been made or not; see MayBeDone
	Cause      error
}

// FieldError describes a mistake in one field of an input.
type FieldError struct {
	Location string // such as "body.name" or "query.limit"
	Message  string
	Value    any
}

// Error returns code, detail and cause.
func (e *Error) Error() string {
	s := e.Code
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Cause != nil {
		s += " (" + e.Cause.Error() + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target has the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errorf makes an Error from a code and a formatted detail.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Overloaded returns the error for a request that is refused because the relay is busy or its buffers are
// full, and may be tried again.
func Overloaded(detail string) *Error {
	return &Error{Code: CodeOverloaded, Detail: detail, RetryAfter: time.Second}
}

// MayBeDone reports whether the change that failed with err may have been made, because the connection to the
// database broke during its commit. Such a change must not be repeated automatically.
func MayBeDone(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Unknown
}

// AsError returns the *Error in the chain of err, or a new one with CodeInternal and
// cause err. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Detail: "something went wrong inside the relay; the log has the reason", Cause: err}
}

// Codes of relay-made answers on alias hosts, of attempt errors, and of the API. They
// are part of the public interface and never change.
const (
	CodeRequestMalformed          = "request-malformed"
	CodeAliasNotFound             = "alias-not-found"
	CodeMethodNotSupported        = "method-not-supported"
	CodeTransferCodingUnsupported = "transfer-coding-unsupported"
	CodeHTTPVersionUnsupported    = "http-version-unsupported"
	CodeRequestTimeout            = "request-timeout"
	CodeBodyTooLarge              = "body-too-large"
	CodeTargetTooLong             = "target-too-long"
	CodeHeadTooLarge              = "head-too-large"
	CodeHostUnknown               = "host-unknown"
	CodeLocalRefused              = "local-refused"
	CodeLocalUnresolvable         = "local-unresolvable"
	CodeLocalClosed               = "local-closed"
	CodeLocalMalformed            = "local-malformed"
	CodeLocalTimeout              = "local-timeout"
	CodeTunnelLost                = "tunnel-lost"
	CodeQueueFull                 = "queue-full"
	CodeStorageFull               = "storage-full"
	CodeStoreUnavailable          = "store-unavailable"
	CodeOverloaded                = "overloaded"
	CodeStopping                  = "stopping"
	CodeSuperseded                = "superseded"
	CodeCanceled                  = "canceled"
	CodeResponseNotStored         = "response-not-stored"
	CodeCallerGone                = "caller-gone" // the caller closed the connection before the end of its request body
	CodeBadRequest                = "bad-request"
	CodeUnauthorized              = "unauthorized"
	CodeForbidden                 = "forbidden"
	CodeLoginTooOld               = "login-too-old" // the action needs a recent login
	CodeNotFound                  = "not-found"
	CodeMethodNotAllowed          = "method-not-allowed"
	CodeConflict                  = "conflict"
	CodeEventNotReplayable        = "event-not-replayable"
	CodeAliasOffline              = "alias-offline" // an event that a user sends is refused while the alias is offline, because it would have to be queued
	CodeNoSigningSecret           = "no-signing-secret"
	CodeCannotSign                = "cannot-sign"
	CodeSecretUnavailable         = "secret-unavailable"
	CodeUnsupportedMediaType      = "unsupported-media-type"
	CodeValidationFailed          = "validation-failed"
	CodeRateLimited               = "rate-limited"
	CodeInternal                  = "internal"
)

var statuses = map[string]int{
	CodeRequestMalformed:          400,
	CodeAliasNotFound:             404,
	CodeMethodNotSupported:        405,
	CodeTransferCodingUnsupported: 501,
	CodeHTTPVersionUnsupported:    505,
	CodeRequestTimeout:            408,
	CodeBodyTooLarge:              413,
	CodeTargetTooLong:             414,
	CodeHeadTooLarge:              431,
	CodeHostUnknown:               421,
	CodeLocalRefused:              502,
	CodeLocalUnresolvable:         502,
	CodeLocalClosed:               502,
	CodeLocalMalformed:            502,
	CodeTunnelLost:                502,
	CodeLocalTimeout:              504,
	CodeQueueFull:                 503,
	CodeStorageFull:               503,
	CodeStoreUnavailable:          503,
	CodeOverloaded:                503,
	CodeStopping:                  503,
	CodeBadRequest:                400,
	CodeUnauthorized:              401,
	CodeForbidden:                 403,
	CodeLoginTooOld:               403,
	CodeNotFound:                  404,
	CodeMethodNotAllowed:          405,
	CodeConflict:                  409,
	CodeEventNotReplayable:        409,
	CodeAliasOffline:              409,
	CodeNoSigningSecret:           409,
	CodeCannotSign:                409,
	CodeSecretUnavailable:         503,
	CodeUnsupportedMediaType:      415,
	CodeValidationFailed:          422,
	CodeRateLimited:               429,
	CodeInternal:                  500,
}

// Status returns the HTTP status of a code, 500 for a code without one.
func Status(code string) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return statuses[CodeInternal]
}

// Errors that packages compare with errors.Is.
var (
	// ErrNotFound is the error for things that do not exist and for things that the actor may not see. A
	// client cannot distinguish the two cases.
	ErrNotFound = &Error{Code: CodeNotFound, Detail: "not found, or your account has no access to it"}
	// ErrNotSent proves that no byte of the request was sent, so that it may be queued.
	ErrNotSent = &Error{Code: "not-sent"}
	// ErrTunnelMoved means that no byte was sent, because the node that should have the tunnel does not have it
	// (any more): the record of the tunnel has to be read again.
	ErrTunnelMoved = &Error{Code: "tunnel-moved"}
	// ErrTunnelSilent means that no byte was sent, because the client of the tunnel does not answer the node
	// that has the tunnel.
	ErrTunnelSilent = &Error{Code: "tunnel-silent"}
	// ErrTunnelSlow means that no byte was sent, because the client of the tunnel is alive but did not answer
	// the node that has the tunnel in time.
	ErrTunnelSlow = &Error{Code: "tunnel-slow"}
	// ErrFenced means that this process may not write the result of an attempt, because it no longer has the
	// claim of the attempt, or that it may not claim an attempt, because the tunnel of the alias is not at this
	// node.
	ErrFenced = &Error{Code: "fenced"}
)
