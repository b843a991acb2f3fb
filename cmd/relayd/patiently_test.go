package main

import (
	"context"
	"errors"
	"testing"

	"relay"
)

// A step of a start is tried again while the store is unavailable, and only then; not if it may have been done.
func TestPatiently(t *testing.T) {
	t.Parallel()
	away, other := relay.Errorf(relay.CodeStoreUnavailable, "away"), errors.New("broken")
	unknown := &relay.Error{Code: relay.CodeStoreUnavailable, Unknown: true}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx   context.Context
		err   error
		calls int
		want  error
	}{
		"an answer that comes late": {t.Context(), away, 3, nil},
		"an error that stays":       {t.Context(), other, 1, other},
		"a change without answer":   {t.Context(), unknown, 1, unknown},
		"a stop during the start":   {ended, away, 1, away},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			_, err := patiently(c.ctx, func() (int, error) {
				if calls++; calls == 3 {
					return 1, nil
				}
				return 0, c.err
			})
			if calls != c.calls || !errors.Is(err, c.want) {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}
