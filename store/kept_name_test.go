package store_test

import (
	"errors"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// TestKeptName: the operator sees until when the name of a removed alias is reserved, and for which account.
// Other accounts do not see it.
func TestKeptName(t *testing.T) {
	onEngines(t, func(t *testing.T, o store.Options) {
		s := mustServe(t, o)
		kept := func(who relay.Actor) (string, time.Time, error) { return s.KeptName(t.Context(), who, "gone") }
		if _, _, err := kept(system); !errors.Is(err, relay.ErrNotFound) {
			t.Errorf("a name that nobody had: %v", err)
		}
		for _, name := range []string{"former", "other"} {
			if _, err := s.CreateAccount(t.Context(), system, name, false); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.CreateAlias(t.Context(), system, "gone", "former"); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveAlias(t.Context(), system, "gone"); err != nil {
			t.Fatal(err)
		}
		user, until, err := kept(system)
		if days := time.Until(until).Hours() / 24; err != nil || user != "former" || days < 29.9 || days > 30.1 {
			t.Errorf("kept for %q until %v, %v", user, until, err)
		}
		other, err := s.AccountByName(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := kept(relay.Actor{Kind: relay.ActorSSH, Account: other.ID, Name: "other"}); err == nil || errors.Is(err, relay.ErrNotFound) {
			t.Errorf("somebody else is told: %v", err)
		}
		if err := s.RemoveAccount(t.Context(), system, "former"); err != nil {
			t.Fatal(err)
		}
		if user, until, err := kept(system); err != nil || user != "" || until.IsZero() {
			t.Errorf("after its account was removed: %q, %v, %v", user, until, err)
		}
	})
}
