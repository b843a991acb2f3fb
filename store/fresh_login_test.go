package store_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// TestLastingChangesNeedAFreshLogin: every method that calls requireFreshLogin refuses a session whose login is
// older than 15 minutes, and accepts one of exactly that age. The test finds these methods in the source, so
// that each new one needs an entry in the map calls.
func TestLastingChangesNeedAFreshLogin(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := mustServe(t, store.Options{DataDir: t.TempDir(), MaxAliases: 10, Now: func() time.Time { return now }})
	ctx := t.Context()
	for _, name := range []string{"alice", "bob"} {
		if _, err := s.CreateAccount(ctx, system, name, false); err != nil {
			t.Fatal(err)
		}
	}
	acc, err := s.AccountByName(ctx, "alice")
	if err != nil {
		t.Fatal(err)
	}
	who := relay.Actor{Account: acc.ID, AccountName: "alice", Name: "alice", Kind: relay.ActorUser, Scopes: relay.AllScopes}
	for _, alias := range []string{"first", "second", "third"} {
		if _, err := s.CreateAlias(ctx, who, alias, ""); err != nil {
			t.Fatal(err)
		}
	}
	key, err := s.AddKey(ctx, who, "alice", "", publicKey(t))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := s.AddSecret(ctx, who, "third", relay.SenderSecret{Provider: "github"}, relay.NewSecretText("of-a-sender"))
	if err != nil {
		t.Fatal(err)
	}
	link, code := enrolled(t, s, time.Hour)
	calls := map[string]func(who relay.Actor) error{
		"ApproveEnrolment": func(who relay.Actor) error { return s.ApproveEnrolment(ctx, who, link, code) },
		"AddKey":           func(who relay.Actor) error { _, err := s.AddKey(ctx, who, "alice", "", publicKey(t)); return err },
		"RemoveKey":        func(who relay.Actor) error { return s.RemoveKey(ctx, who, key.ID) },
		"CreateToken": func(who relay.Actor) error {
			_, _, err := s.CreateToken(ctx, who, relay.Token{Scopes: relay.ScopeAccount})
			return err
		},
		"TransferAlias": func(who relay.Actor) error { _, err := s.TransferAlias(ctx, who, "first", "bob"); return err },
		"AddSecret": func(who relay.Actor) error {
			_, err := s.AddSecret(ctx, who, "third", relay.SenderSecret{Provider: "github"}, relay.NewSecretText("of-another-sender"))
			return err
		},
		"RemoveSecret": func(who relay.Actor) error { return s.RemoveSecret(ctx, who, "third", secret.ID) },
		"RemoveAlias":  func(who relay.Actor) error { return s.RemoveAlias(ctx, who, "second") },
	}
	for name, call := range calls {
		who.LoggedInAt = now.Add(-15*time.Minute - time.Second)
		if err := relay.AsError(call(who)); err == nil || err.Code != relay.CodeLoginTooOld {
			t.Errorf("%s, 15 minutes and a second after the login: %v", name, err)
		}
		who.LoggedInAt = now.Add(-15 * time.Minute)
		if err := call(who); err != nil {
			t.Errorf("%s, 15 minutes after the login: %v", name, err)
		}
	}
	files, _ := filepath.Glob("people/*.go")
	asks := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range regexp.MustCompile(`(?m)^func (?:\(\w+ \*?\w+\) )?(\w+)[^\n]*\{\n(?:[^}\n][^\n]*\n|\n)*?\}`).FindAllSubmatch(text, -1) {
			if regexp.MustCompile(`s\.requireFreshLogin\(`).Match(f[0]) {
				asks[string(f[1])] = true
			}
		}
	}
	if got, want := slices.Sorted(maps.Keys(asks)), slices.Sorted(maps.Keys(calls)); !slices.Equal(got, want) {
		t.Errorf("the source asks in %v, the table has %v", got, want)
	}
}
