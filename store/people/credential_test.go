package people

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// If the database fails to delete a login link, the error does not say that the link is used or unknown.
func TestLoginLinkOfAFailingDatabase(t *testing.T) {
	t.Parallel()
	s := openPeople(t)
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

// A login is checked even while all connections for other reads of SQLite are busy with long reads.
func TestLoginsDoNotWaitForReaders(t *testing.T) {
	t.Parallel()
	s := openPeople(t)
	for range s.db.Readers() {
		conn, err := s.db.Read.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	began := time.Now()
	if _, err := s.TokenOwner(t.Context(), "none"); !errors.Is(err, relay.ErrNotFound) {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if err := s.StillValid(t.Context(), relay.Actor{Kind: relay.ActorUser, Credential: "none"}); !errors.Is(err, relay.ErrNotFound) {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// publicLine returns an authorized_keys line of a new key, without a comment.
func publicLine(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	line := ssh.MarshalAuthorizedKey(key)
	return string(line[:len(line)-1])
}

// A token or key with invisible characters in its given name is refused. The line of a .pub file is accepted
// whatever its comment contains, and invisible characters of the comment are escaped.
func TestNamesThatCannotBeShown(t *testing.T) {
	t.Parallel()
	s := openPeople(t)
	if _, err := s.CreateAccount(t.Context(), relay.System(), "alice", false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a\x1b[2Jb", "two\nlines", "left\u202eright", "in\u200bvisible", "\xff"} {
		var e *relay.Error
		if _, _, err := s.CreateToken(t.Context(), relay.System(), relay.Token{AccountName: "alice", Name: name}); !errors.As(err, &e) || e.Code != relay.CodeValidationFailed {
			t.Errorf("token %q: %v", name, err)
		}
		if _, err := s.AddKey(t.Context(), relay.System(), "alice", name, publicLine(t)); !errors.As(err, &e) || e.Code != relay.CodeValidationFailed {
			t.Errorf("key %q: %v", name, err)
		}
	}
	for comment, want := range map[string]string{"alice@laptop": "alice@laptop", "a\x1b[2Jb": `a\x1b[2Jb`, "Käse \xff": `Käse \xff`} {
		if k, err := s.AddKey(t.Context(), relay.System(), "alice", "", publicLine(t)+" "+comment); err != nil || k.Name != want {
			t.Errorf("comment %q: name %q, want %q, %v", comment, k.Name, want, err)
		}
	}
	if _, _, err := s.CreateToken(t.Context(), relay.System(), relay.Token{AccountName: "alice", Name: "Käse 一"}); err != nil {
		t.Error(err)
	}
}
