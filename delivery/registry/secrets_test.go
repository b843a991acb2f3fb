package registry

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"relay"
)

// secretStore has one alias with its secrets.
type secretStore struct {
	Store
	secrets relay.OpenSecrets
	err     error
}

func (*secretStore) AliasByID(context.Context, int64) (*relay.Alias, error) {
	return &relay.Alias{ID: 7, Name: "hook", Owner: 1}, nil
}

func (s *secretStore) OpenSecrets(context.Context, int64) (relay.OpenSecrets, error) {
	return s.secrets, s.err
}

// TestSecretsFollowTheAlias: a change of an alias updates its secrets in memory. While the store does
// not answer, the known secrets stay.
func TestSecretsFollowTheAlias(t *testing.T) {
	store := &secretStore{secrets: relay.OpenSecrets{{SenderSecret: relay.SenderSecret{ID: "sec_a", Provider: "github"}}}}
	ended, end := context.WithCancel(t.Context())
	defer end()
	r := New(Options{NewDispatcher: func(*Alias) Dispatcher { return nil }, Store: store, Base: ended, Log: slog.New(slog.DiscardHandler)})
	want := func(what string, n int) {
		t.Helper()
		if got := r.ByID(7).Secrets(); len(got) != n {
			t.Errorf("%s: %d secrets", what, len(got))
		}
	}
	r.reload(7)
	want("added", 1)
	store.secrets, store.err = nil, errors.New("away")
	r.reload(7)
	want("away", 1)
	store.err = nil
	r.reload(7)
	want("removed", 0)
}
