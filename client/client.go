// Package client implements what the program relay does. It logs in to a relay over SSH
// with checked host keys, carries tunnel channels to a local server that it dials at
// the first byte, reconnects when the connection is lost, and calls the relay's API, over
// SSH with the key or over HTTP with a token.
//
// It prints nothing itself: text for people goes through the callbacks of Dialer and
// Up. Code that prints it has to pass it through record.SafeText, because it may hold
// bytes of a server or a caller.
package client

import (
	"errors"
	"fmt"

	"relay"
)

// Exit codes of the program relay.
const (
	ExitFailure     = 1
	ExitUsage       = 2
	ExitRefused     = 3  // login refused, or the host key is not the known one
	ExitNotFound    = 4  // no such thing, or not yours
	ExitTaken       = 5  // alias taken over, or not yours
	ExitUnreachable = 69 // sysexits EX_UNAVAILABLE
	ExitInterrupted = 130
)

// Error is an error with the exit code of the program and a hint what to do.
type Error struct {
	Exit  int    // exit code of the program
	Text  string // what happened: lower case, no stop; "" = the printed answer tells
	Hint  string // what to do next, or ""
	Code  string // of the API's answer, or ""
	Cause error  // or nil

	transient bool // the relay answered, and may answer otherwise in a moment
}

// Error returns the text and the cause.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Text
	}
	return e.Text + ": " + e.Cause.Error()
}

// hasCode reports whether err is an answer of the API with a code.
func hasCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// HintOf returns the hint of an error, or otherwise if it has none.
func HintOf(err error, otherwise string) string {
	var e *Error
	if errors.As(err, &e) && e.Hint != "" {
		return e.Hint
	}
	return otherwise
}

// Conflict reports whether the relay refused because of the present state.
func Conflict(err error) bool { return hasCode(err, relay.CodeConflict) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf returns an Error without a hint.
func Errorf(exit int, format string, args ...any) *Error {
	return &Error{Exit: exit, Text: fmt.Sprintf(format, args...)}
}

// WithHint returns a copy of the error with a hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	out := *e
	out.Hint = fmt.Sprintf(format, args...)
	return &out
}
