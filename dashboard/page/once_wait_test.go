package page

import (
	"context"
	"testing"
	"testing/synctest"

	"relay"
)

type accounts = Accounts

// stillRunning is a store where the first form with each key has not ended.
type stillRunning struct {
	accounts
	asked int
}

func (s *stillRunning) BeginIdempotent(context.Context, relay.Actor, string, string) (int, []byte, error) {
	s.asked++
	return 0, nil, relay.Errorf(relay.CodeConflict, "still running")
}

// A form that waits for its first time asked the store twenty times a second, each time in a
// transaction that writes: some hundred forms of one share kept everybody else from storing.
func TestSecondFormsAskSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stillRunning{}
		p := &Pages{Options: Options{Accounts: store}}
		if _, _, err := p.begin(t.Context(), relay.Actor{}, "form", "POST /"); relay.AsError(err).Code != relay.CodeConflict {
			t.Error(err)
		}
		if store.asked < 5 || store.asked > 20 {
			t.Errorf("asked %d times", store.asked)
		}
	})
}
