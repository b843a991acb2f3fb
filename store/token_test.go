package store_test

import (
	"testing"
	"time"

	"relay"
	"relay/store"
)

// Tokens are renewed by the clock of Postgres, which also decides when they expire. A renewal by the clock of
// a machine that is behind could end a token early.
func TestTokensAreRenewedByTheClockThatEndsThem(t *testing.T) {
	t.Parallel()
	now := func() time.Time { return time.Now().Add(2 * time.Hour) } // the clock of Postgres is ahead of the machine's
	s := mustServe(t, store.Options{DataDir: t.TempDir(), Now: now})
	if _, err := s.CreateAccount(t.Context(), system, "alice", false); err != nil {
		t.Fatal(err)
	}
	made, secret, err := s.CreateToken(t.Context(), system, relay.Token{AccountName: "alice", ExpiresAt: now().Add(time.Hour), Renewal: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	use := func() {
		t.Helper()
		if _, err := s.TokenOwner(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	use()
	var list []relay.Token
	eventually(t, "the use is noted", func() bool {
		if list, err = s.Tokens(t.Context(), system, "alice"); err != nil {
			t.Fatal(err)
		}
		return !list[0].LastUsedAt.IsZero()
	})
	if list[0].ExpiresAt.Before(made.ExpiresAt) {
		t.Errorf("a use has moved the end of the token from %v to %v", made.ExpiresAt, list[0].ExpiresAt)
	}
	use()
}
