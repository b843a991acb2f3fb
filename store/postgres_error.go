package store

import (
	"errors"

	"github.com/lib/pq"

	"relay"
)

// postgresUnavailable returns the relay code of an error that means that the server cannot
// write now, and "" for an error that the values of a row caused. Few errors are caused by a
// row. All others can pass, by themselves or when somebody acts: a lock, a timeout, a revoked
// privilege, a table that is being renamed, a replica that is being promoted. An event that
// was answered must not be dropped because of one of those.
func postgresUnavailable(err error) string {
	var e *pq.Error
	switch {
	case !errors.As(err, &e), isRowError(e):
		return ""
	case e.Code == "53100": // disk_full
		return relay.CodeStorageFull
	}
	return relay.CodeStoreUnavailable
}

// isRowError reports whether the values of a row caused the error.
func isRowError(e *pq.Error) bool {
	switch e.Code.Class() {
	case "21", "22", "23": // cardinality_violation, data_exception, integrity_constraint_violation
		return true
	}
	return false
}

// retriable reports whether the engine asks for the same transaction to be run again.
func retriable(err error) bool {
	var e *pq.Error
	return errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01") // serialization failure, deadlock
}

// connectionError wraps an error of connecting, or of beginning or ending a transaction. No
// row caused it, whatever its code.
type connectionError struct{ cause error }

func (e *connectionError) Error() string { return e.cause.Error() }

func (e *connectionError) Unwrap() error { return e.cause }

// asConnectionError wraps such an error of Postgres; nil stays nil.
func (s *Store) asConnectionError(err error) error {
	if err == nil || !s.d.isPostgres {
		return err
	}
	return &connectionError{err}
}
