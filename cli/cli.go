// Package cli holds the code shared by the program relay and the commands of plain ssh: the commands about
// aliases and events, the client of the API /api/v1 that they use, and errors with exit codes.
//
// The package prints bytes of a relay or a caller only through record.SafeText. Texts of errors may hold such
// bytes unescaped.
package cli

import (
	"errors"
	"fmt"
	"strings"

	"relay"
	"relay/record"
)

// Exit codes of relay, and of the sessions and commands of plain ssh.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitRefused     = 3  // login refused, or the host key is another than the known one
	ExitNotFound    = 4  // unknown, or not accessible to the account
	ExitTaken       = 5  // alias taken over, or owned by another account
	ExitUnreachable = 69 // sysexits EX_UNAVAILABLE
	ExitInterrupted = 130
)

// Error is an error with the exit code of the program and a hint how to go on.
type Error struct {
	Exit  int    // exit code of the program
	Text  string // text of the error, in lower case without a full stop; "" = the printed output shows the error
	Hint  string // advice what to do next, or ""
	Code  string // error code of the API, or ""
	Cause error  // nil = none

	Transient bool // an answer arrived, from the relay or a proxy; a retry in a moment may succeed
}

// Error returns the text and the cause.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Text
	}
	return e.Text + ": " + e.Cause.Error()
}

// HasCode reports whether err is an answer of the API with a code.
func HasCode(err error, code string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// HintOf returns the hint of an error. For an error without a hint, it returns the argument otherwise.
func HintOf(err error, otherwise string) string {
	if e, ok := errors.AsType[*Error](err); ok && e.Hint != "" {
		return e.Hint
	}
	return otherwise
}

// Conflict reports whether err is an answer of the API with the code conflict: the request does not fit the
// present state.
func Conflict(err error) bool { return HasCode(err, relay.CodeConflict) }

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

// Meant returns a copy of the error with a hint. If a word of known is similar to typed, the hint is "did you
// mean", followed by the text of prefix and by that word. Else the hint is the argument otherwise.
func (e *Error) Meant(typed string, known []string, prefix, otherwise string) *Error {
	if near := record.Nearest(typed, known); near != "" {
		return e.WithHint("did you mean %s%s", prefix, near)
	}
	return e.WithHint("%s", otherwise)
}

// NormalAlias returns an alias name in lower case and without a trailing dot. The name
// may include the alias domain.
func NormalAlias(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// AliasLabel returns the alias in a host name such as stripe-dev.example.com: the text before the first dot.
func AliasLabel(bind string) string {
	name, _, _ := strings.Cut(bind, ".")
	return name
}
