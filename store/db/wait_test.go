package db

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/lib/pq"
)

// A step of the start runs again after an error that passes, and only then: a commit without an answer may have been
// made.
func TestWhileBusy(t *testing.T) {
	t.Parallel()
	late := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"a lock that lasts":            {&pq.Error{Code: "55P03"}, true},
		"a statement without answer":   {fmt.Errorf("call a node dead: %w", late), true},
		"a commit without answer":      {(&DB{Dialect: Postgres{}}).unanswered(late), false},
		"a row that is refused":        {&pq.Error{Code: "23505"}, false},
		"a database that is not there": {&net.OpError{Op: "dial", Net: "tcp", Err: os.ErrNotExist}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			err := WhileBusy(t.Context(), func() error {
				if calls++; calls == 1 {
					return (&DB{Dialect: Postgres{}}).Fault("start", c.err)
				}
				return nil
			})
			if again := calls == 2 && err == nil; again != c.again || !again && !errors.Is(err, c.err) {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}
