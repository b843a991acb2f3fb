package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"relay"
	"relay/store/spool"
)

// Only what is wrong with a row refuses it for good: all else may pass.
func TestPostgresUnavailable(t *testing.T) {
	t.Parallel()
	for code, want := range map[pqerror.Code]string{
		"22021": "", // a byte that the encoding of the database has not
		"23502": "",
		"53100": relay.CodeStorageFull,
		"0A000": relay.CodeStoreUnavailable, // BEGIN READ WRITE on a replica
		"25006": relay.CodeStoreUnavailable, // a write on one
		"28P01": relay.CodeStoreUnavailable,
		"3D000": relay.CodeStoreUnavailable,
		"40P01": relay.CodeStoreUnavailable, // again and again
		"42501": relay.CodeStoreUnavailable,
		"42P01": relay.CodeStoreUnavailable, // no USAGE of the schema looks like this
		"53300": relay.CodeStoreUnavailable,
		"54000": relay.CodeStoreUnavailable, // no more transactions before a VACUUM
		"55P03": relay.CodeStoreUnavailable,
		"57014": relay.CodeStoreUnavailable,
		"57P01": relay.CodeStoreUnavailable,
		"08P01": relay.CodeStoreUnavailable, // all that pgbouncer says itself
		"XX000": relay.CodeStoreUnavailable,
	} {
		err := fmt.Errorf("write: %w", &pq.Error{Code: code})
		if got := unavailable(err); got != want {
			t.Errorf("%s is %q, not %q", code, got, want)
		}
	}
	if got := unavailable(&connectionError{errors.New("x509: certificate has expired")}); got != relay.CodeStoreUnavailable {
		t.Errorf("a connection that cannot be made is %q", got)
	}
}

// A batch that the database asks to run again is not run for ever: its callers wait.
func TestDeadlocksWithoutEnd(t *testing.T) {
	t.Parallel()
	s := serveSQLite(t)
	c := newCommitter(s)
	st := &step{Step: spool.Step{Kind: spool.Requeue, ID: s.NewID(), N: 1}, ticket: relay.NewTicket()}
	began, tries := time.Now(), 0
	go c.commit(context.Background(), []*step{st}, func(context.Context, []*step) ([]relay.Change, error) {
		if tries++; time.Since(began) > 30*time.Second {
			return nil, nil // the test has failed; let it end
		}
		return nil, &pq.Error{Code: "40P01"}
	})
	<-st.ticket.Done()
	if err := st.ticket.Err(); relay.AsError(err).Code != relay.CodeStoreUnavailable || tries < 2 {
		t.Errorf("after %d tries in %v: %v", tries, time.Since(began), err)
	}
}
