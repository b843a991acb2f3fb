package store

import (
	"errors"
	"testing"

	"relay"
)

// A link that the database could not delete is not called used or unknown.
func TestLoginLinkOfAFailingDatabase(t *testing.T) {
	t.Parallel()
	s := openMigrated(t, Options{DataDir: t.TempDir()})
	ctx, who := t.Context(), relay.System()
	if _, err := s.CreateAccount(ctx, who, "alice", false); err != nil {
		t.Fatal(err)
	}
	secret, err := s.CreateLoginLink(ctx, who, "alice", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Write.Exec(`CREATE TRIGGER refuse BEFORE DELETE ON links BEGIN SELECT RAISE(ABORT, 'no'); END`); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.UseLoginLink(ctx, secret, "", ""); err == nil || errors.Is(err, relay.ErrNotFound) {
		t.Errorf("while it cannot be deleted: %v", err)
	}
	if _, err := s.db.Write.Exec(`DROP TRIGGER refuse`); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.UseLoginLink(ctx, secret, "", ""); err != nil {
		t.Error(err)
	}
}
