package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"relay"
)

// Fault converts an error of the database for callers of the store: a missing row becomes ErrNotFound, and an
// unusable database becomes store-unavailable or storage-full. Errors that the store itself created stay
// unchanged.
func (s *DB) Fault(what string, err error) error {
	if err == nil {
		return nil
	}
	var own *relay.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, sql.ErrNoRows):
		return relay.ErrNotFound
	}
	if code := Unavailable(err); code != "" {
		e := &relay.Error{
			Code: code, RetryAfter: 2 * time.Second, Detail: "the relay cannot reach its storage; try again in a moment",
			Cause: fmt.Errorf("%s: %w", what, err),
		}
		if lost := (*unansweredCommit)(nil); errors.As(err, &lost) {
			e.Unknown, e.Detail = true, "the relay lost its storage just as this was saved; look whether it was done before you try again"
		}
		if code == relay.CodeStorageFull || s.DiskFull(err) {
			e.Code, e.RetryAfter, e.Detail = relay.CodeStorageFull, 30*time.Second, "the relay's disk is full; try again later"
		}
		return e
	}
	return fmt.Errorf("%s: %w", what, err)
}

// unansweredCommit wraps the error of a commit that the database may or may not have made.
type unansweredCommit struct{ cause error }

func (e *unansweredCommit) Error() string { return e.cause.Error() }

func (e *unansweredCommit) Unwrap() error { return e.cause }

// unanswered wraps the error of a commit as unansweredCommit, unless the database refused the commit or never
// received it. A SQLite file always answers. A pooler that has lost the database reports a code of class 08,
// connection_exception.
func (s *DB) unanswered(err error) error {
	never := errors.Is(err, sql.ErrTxDone) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	refused := SQLState(err) != "" && SQLState(err)[:2] != "08"
	if !s.Dialect.Remote() || refused || never {
		return err
	}
	return &unansweredCommit{err}
}

// operationFault is Fault for the error of a whole View or Update. If one took too long on a database file on
// this machine, the error is overloaded.
func (s *DB) operationFault(what string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !s.Dialect.Remote() { // the file is on this machine, so the machine is busy
		e := relay.Overloaded("this took too long, because the relay is busy; try again in a moment")
		e.Cause = fmt.Errorf("%s: %w", what, err)
		return e
	}
	return s.Fault(what, err)
}

// Unavailable returns the relay code of an error which means that the database cannot be used; "" for all other
// errors and for nil.
func Unavailable(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return relay.CodeStorageFull
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.As(err, &network):
		return relay.CodeStoreUnavailable
	}
	if code := sqliteUnavailable(err); code != "" {
		return code
	}
	if code := postgresUnavailable(err); code != "" {
		return code
	}
	if away := (*connectionError)(nil); errors.As(err, &away) {
		return relay.CodeStoreUnavailable
	}
	return ""
}
