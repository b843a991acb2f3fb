package store

import (
	"context"
	"errors"
	"testing"
)

// Deletes don't wait for the disk; whatever becomes of them, the commits of the
// journal behind them do.
func TestDeletesLeaveTheWriterDurable(t *testing.T) {
	t.Parallel()
	s := figured(t, 1)
	level := func() (n int) {
		t.Helper()
		if err := s.write.Get(&n, `PRAGMA synchronous`); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const normal, full = 1, 2
	during := 0
	if err := s.brief(t.Context(), "", func(c *change, _ int) error { return c.get(&during, `PRAGMA synchronous`) }); err != nil {
		t.Fatal(err)
	}
	if during != normal || level() != full {
		t.Errorf("synchronous is %d during and %d behind it", during, level())
	}
	mine := errors.New("mine")
	if err := s.brief(t.Context(), "", func(*change, int) error { return mine }); !errors.Is(err, mine) || level() != full {
		t.Errorf("%v, then synchronous %d", err, level())
	}
	ended, end := context.WithCancel(t.Context())
	_ = s.brief(ended, "", func(*change, int) error { end(); return nil }) // its pause may be over before
	if level() != full {
		t.Errorf("synchronous %d after the end of a context", level())
	}
}
