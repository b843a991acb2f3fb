package store

import (
	"errors"

	"github.com/lib/pq"

	"relay"
)

// postgresUnavailable gives the relay code of an error that says that the server
// cannot serve now, "" for errors of a row. A row is at fault for few reasons. All
// others may be gone in a moment, with somebody's help or without: a lock, a timeout, a
// right that was taken away, a table that is being renamed, a replica that is being
// promoted. What was answered must not be given up for one of those.
func postgresUnavailable(err error) string {
	var e *pq.Error
	switch {
	case !errors.As(err, &e), ofRow(e):
		return ""
	case e.Code == "53100": // disk_full
		return relay.CodeStorageFull
	}
	return relay.CodeStoreUnavailable
}

// ofRow tells whether the values of a row are at fault.
func ofRow(e *pq.Error) bool {
	switch e.Code.Class() {
	case "21", "22", "23": // cardinality_violation, data_exception, integrity_constraint_violation
		return true
	}
	return false
}

// retriable tells whether the engine asks to run the same transaction again.
func retriable(err error) bool {
	var e *pq.Error
	return errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01") // serialization failure, deadlock
}

// awayError is one of making a connection, or of beginning or ending a transaction:
// no row is at fault, whatever it is called.
type awayError struct{ cause error }

func (e *awayError) Error() string { return e.cause.Error() }

func (e *awayError) Unwrap() error { return e.cause }

// outside marks such an error of Postgres; nil stays nil.
func (s *Store) outside(err error) error {
	if err == nil || !s.d.bulk {
		return err
	}
	return &awayError{err}
}
