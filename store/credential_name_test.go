package store_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay"
)

// publicLine makes an authorized_keys line of a new key, without a comment.
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

// A name that cannot be shown is refused whoever gives it; a .pub file works whatever its
// comment holds, and what cannot be shown of that is written out.
func TestNamesThatCannotBeShown(t *testing.T) {
	t.Parallel()
	s := mustServe(t, engines(t)["sqlite"])
	if _, err := s.CreateAccount(t.Context(), system, "alice", false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a\x1b[2Jb", "two\nlines", "left\u202eright", "in\u200bvisible", "\xff"} {
		var e *relay.Error
		if _, _, err := s.CreateToken(t.Context(), system, relay.Token{AccountName: "alice", Name: name}); !errors.As(err, &e) || e.Code != relay.CodeValidationFailed {
			t.Errorf("token %q: %v", name, err)
		}
		if _, err := s.AddKey(t.Context(), system, "alice", name, publicLine(t)); !errors.As(err, &e) || e.Code != relay.CodeValidationFailed {
			t.Errorf("key %q: %v", name, err)
		}
	}
	for comment, want := range map[string]string{"alice@laptop": "alice@laptop", "a\x1b[2Jb": `a\x1b[2Jb`, "Käse \xff": `Käse \xff`} {
		if k, err := s.AddKey(t.Context(), system, "alice", "", publicLine(t)+" "+comment); err != nil || k.Name != want {
			t.Errorf("comment %q: name %q, want %q, %v", comment, k.Name, want, err)
		}
	}
	if _, _, err := s.CreateToken(t.Context(), system, relay.Token{AccountName: "alice", Name: "Käse 一"}); err != nil {
		t.Error(err)
	}
}
