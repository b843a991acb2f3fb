// Package client is the visitor: what the program relay does. It logs in to a relay
// over SSH with checked host keys, carries tunnel channels to a local server that
// it dials at the first byte, comes back when the connection is lost, and runs the
// commands about events over SSH or the API.
//
// It talks to nobody by itself: what is for people goes out through the callbacks
// of Dialer and Up, and everything in them that came from a server or a caller has
// to be passed through record.SafeText by whoever prints it.
package client

import (
	"errors"
	"fmt"
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

// Error is an error that a person can act on.
type Error struct {
	Exit  int    // exit code of the program
	Text  string // what happened: lower case, no stop; "" = the printed answer tells
	Hint  string // what to do next, or ""
	Cause error  // or nil

	transient bool // the relay answered, and may answer otherwise in a moment
	forbidden bool // the token may not do that
	conflict  bool // something stands against it
}

// Error gives the text and the cause.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Text
	}
	return e.Text + ": " + e.Cause.Error()
}

// Conflict tells whether the relay refused because of what there is already.
func Conflict(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.conflict
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error without a hint.
func Errorf(exit int, format string, args ...any) *Error {
	return &Error{Exit: exit, Text: fmt.Sprintf(format, args...)}
}

// WithHint gives a copy of the error with a hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	out := *e
	out.Hint = fmt.Sprintf(format, args...)
	return &out
}
