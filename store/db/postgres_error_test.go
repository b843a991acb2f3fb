package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"relay"
)

// A row is refused for good only if its own values caused the error. Every other error counts as temporary.
func TestPostgresUnavailable(t *testing.T) {
	t.Parallel()
	for code, want := range map[pqerror.Code]string{
		"22021": "", // a byte that does not exist in the encoding of the database
		"23502": "",
		"53100": relay.CodeStorageFull,
		"0A000": relay.CodeStoreUnavailable, // BEGIN READ WRITE on a replica
		"25006": relay.CodeStoreUnavailable, // a write on a replica
		"23514": relay.CodeStoreUnavailable, // a partition is being attached while the default partition gets a row
		"28P01": relay.CodeStoreUnavailable,
		"3D000": relay.CodeStoreUnavailable,
		"40P01": relay.CodeStoreUnavailable, // the error remains after several tries
		"42501": relay.CodeStoreUnavailable,
		"42P01": relay.CodeStoreUnavailable, // Postgres also reports this code if the USAGE right on the schema is missing
		"53300": relay.CodeStoreUnavailable,
		"54000": relay.CodeStoreUnavailable, // Postgres allows no more transactions before a VACUUM
		"55P03": relay.CodeStoreUnavailable,
		"57014": relay.CodeStoreUnavailable,
		"57P01": relay.CodeStoreUnavailable,
		"08P01": relay.CodeStoreUnavailable, // pgbouncer uses this code for all its own errors
		"XX000": relay.CodeStoreUnavailable,
	} {
		err := fmt.Errorf("write: %w", &pq.Error{Code: code})
		if got := Unavailable(err); got != want {
			t.Errorf("%s is %q, not %q", code, got, want)
		}
	}
	if got := Unavailable(&connectionError{errors.New("x509: certificate has expired")}); got != relay.CodeStoreUnavailable {
		t.Errorf("a connection that cannot be made is %q", got)
	}
}

// TestUnansweredCommit: if the connection was lost during a commit, or a pooler reports with its own code that
// it lost the database, the outcome is unknown. The outcome is known if the database refused the commit or never
// got it. With SQLite it is always known.
func TestUnansweredCommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		unknown bool
	}{
		{driver.ErrBadConn, true},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true},
		{&pq.Error{Code: "08P01"}, true}, // pgbouncer uses this code for all its own errors
		{&pq.Error{Code: "08006"}, true},
		{&pq.Error{Code: "40001"}, false},
		{&pq.Error{Code: "23503"}, false},
		{sql.ErrTxDone, false},
		{context.DeadlineExceeded, false},
	} {
		for dialect, unknown := range map[Dialect]bool{Postgres{}: c.unknown, SQLite{}: false} {
			s := &DB{Dialect: dialect}
			err := s.Fault("commit", dialect.wrapCommit(s.unanswered(c.err)))
			if got := relay.MayBeDone(err); got != unknown {
				t.Errorf("%T: %v is unknown: %v", dialect, c.err, got)
			}
		}
	}
}
