package storetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
	"relay/store/seal"
)

func testSecrets(t *testing.T, fresh func(testing.TB) store.Options) {
	keys := []seal.Key{seal.NewKey(), seal.NewKey()}
	b := setup(t, fresh, func(o *store.Options) { o.SecretKeys = keys })
	b.must(b.AddMember(t.Context(), b.bob, "other", "alice"))
	t.Run("forms", func(t *testing.T) { b.with(t).secretForms() })
	t.Run("rights", func(t *testing.T) { b.with(t).secretRights() })
	t.Run("chosen", func(t *testing.T) { b.with(t).chosenSecrets() })
	t.Run("gone with the alias", func(t *testing.T) { b.with(t).secretsOfLostAlias() })
	t.Run("verify token", func(t *testing.T) { b.with(t).verifyTokens() })
	// The store of b has other keys after this call, so the checks below open new stores.
	b.rotatedKeys(keys)
	t.Run("verdicts", func(t *testing.T) { setup(t, fresh).verdicts() })
	t.Run("kept", func(t *testing.T) { setup(t, fresh).secretsAreKept() })
	t.Run("without a key", func(t *testing.T) { secretsWithoutKey(t, fresh) })
	t.Run("a token makes the key", func(t *testing.T) {
		b := setup(t, fresh)
		b.setToken(b.alice, "hooks", "t")
		b.reopen()
		if one, all := b.readToken(b.hooks.ID); one != "t" || all != "t" {
			t.Errorf("read %q and %q", one, all)
		}
	})
}

func (b *fixture) addSecret(who relay.Actor, alias, value string, s relay.SenderSecret) (relay.SenderSecret, error) {
	return b.AddSecret(b.Context(), who, alias, s, relay.NewSecretText(value))
}

func (b *fixture) secretsAreKept() {
	const value = "whsec_kept-and-sealed"
	made, err := b.addSecret(b.alice, "hooks", value, relay.SenderSecret{Provider: "stripe", Path: "/pay", Sign: true})
	b.must(err)
	if !strings.HasPrefix(made.ID, "sec_") || made.Provider != "stripe" || made.Path != "/pay" || !made.Sign || made.CreatedBy != "user:alice" ||
		time.Since(made.CreatedAt) > time.Minute || !made.LastValidAt.IsZero() {
		b.Errorf("made %+v", made)
	}
	b.reopen()
	list, err := b.Secrets(b.Context(), b.alice, "hooks")
	if err != nil || len(list) != 1 || list[0] != made {
		b.Errorf("listed %+v, %v", list, err)
	}
	open, err := b.OpenSecrets(b.Context(), b.hooks.ID)
	if err != nil || len(open) != 1 || open[0].Value.Reveal() != value || open[0].Sealed {
		b.Errorf("opened %+v, %v", open, err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", open, open, open, open[0].Value); strings.Contains(text, value) {
		b.Errorf("formatted with its value: %s", text)
	}
	all, err := b.AllOpenSecrets(b.Context())
	if err != nil || len(all[b.hooks.ID]) != 1 || all[b.hooks.ID][0].Value.Reveal() != value {
		b.Errorf("all: %+v, %v", all, err)
	}
	at := time.Now().UTC().Truncate(time.Second)
	b.NoteValid(&relay.Signature{SecretID: made.ID, Reason: "ok"}, at)
	b.eventually("the time of a fit is noted", func() bool {
		list, err := b.Secrets(b.Context(), b.alice, "hooks")
		return err == nil && len(list) == 1 && list[0].LastValidAt.Equal(at)
	})
	b.heard("a secret was added", func(c relay.Change) bool { return c.Kind == relay.ChangeAlias && c.Alias == b.hooks.ID })
	b.must(b.RemoveSecret(b.Context(), b.alice, "hooks", made.ID))
	b.want(relay.CodeNotFound, b.RemoveSecret(b.Context(), b.alice, "hooks", made.ID))
	entries, err := b.Audit(b.Context(), b.alice, 10)
	b.must(err)
	var told []string
	for _, e := range entries {
		if strings.HasPrefix(e.Action, "secret.") {
			told = append(told, e.Action+" "+e.Target+" "+e.Detail)
		}
	}
	if want := []string{"secret.remove " + made.ID + " hooks stripe /pay sign", "secret.add " + made.ID + " hooks stripe /pay sign"}; !slices.Equal(told, want) {
		b.Errorf("audit %q", told)
	}
}

// secretForms checks that values that cannot be a secret of the sender are refused, and that the error
// does not repeat them.
func (b *fixture) secretForms() {
	for name, c := range map[string]struct {
		value string
		s     relay.SenderSecret
		field string
	}{
		"no provider":        {"x", relay.SenderSecret{}, "provider"},
		"unknown provider":   {"x", relay.SenderSecret{Provider: "strype"}, "provider"},
		"empty":              {"", relay.SenderSecret{Provider: "stripe"}, "secret"},
		"too long":           {strings.Repeat("x", 10_001), relay.SenderSecret{Provider: "stripe"}, "secret"},
		"a space behind":     {"whsec_x ", relay.SenderSecret{Provider: "stripe"}, "secret"},
		"no base64":          {"whsec_!!!!", relay.SenderSecret{Provider: "standard-webhooks"}, "secret"},
		"public key":         {"whpk_AAAA", relay.SenderSecret{Provider: "standard-webhooks"}, "secret"},
		"publishable key":    {"pk_test_0123", relay.SenderSecret{Provider: "stripe"}, "secret"},
		"api key":            {"sk_test_0123", relay.SenderSecret{Provider: "stripe"}, "secret"},
		"no public key":      {"0123", relay.SenderSecret{Provider: "discord"}, "secret"},
		"no path":            {"x", relay.SenderSecret{Provider: "github", Path: "hook"}, "path"},
		"signs with no key":  {strings.Repeat("0", 64), relay.SenderSecret{Provider: "discord", Sign: true}, "sign"},
		"key of the network": {"x", relay.SenderSecret{Provider: "paypal"}, "secret"},
	} {
		_, err := b.addSecret(b.alice, "hooks", c.value, c.s)
		b.want(relay.CodeValidationFailed, err)
		e := relay.AsError(err)
		if e == nil || len(e.Fields) != 1 || e.Fields[0].Location != "body."+c.field || c.field == "secret" && e.Fields[0].Value != nil ||
			len(c.value) > 4 && strings.Contains(e.Error(), c.value) {
			b.Errorf("%s: %+v", name, e)
		}
	}
	for i := range relay.MaxSecrets {
		_, err := b.addSecret(b.alice, "hooks", fmt.Sprint("secret-", i), relay.SenderSecret{Provider: "github"})
		b.must(err)
	}
	_, err := b.addSecret(b.alice, "hooks", "one more", relay.SenderSecret{Provider: "github"})
	b.want(relay.CodeConflict, err)
	list, err := b.Secrets(b.Context(), b.alice, "hooks")
	b.must(err)
	for _, s := range list {
		b.must(b.RemoveSecret(b.Context(), b.alice, "hooks", s.ID))
	}
}

func (b *fixture) secretRights() {
	github := relay.SenderSecret{Provider: "github"}
	made, err := b.addSecret(b.bob, "other", "s", github)
	b.must(err)
	_, err = b.addSecret(b.alice, "other", "s", github) // a member may not add one
	b.want(relay.CodeForbidden, err)
	_, err = b.addSecret(b.alice, "other", "", relay.SenderSecret{}) // a member does not learn which value is invalid
	b.want(relay.CodeForbidden, err)
	_, err = b.addSecret(b.root, "other", "s", github)
	b.want(relay.CodeNotFound, err)
	b.want(relay.CodeForbidden, b.RemoveSecret(b.Context(), b.alice, "other", made.ID))
	b.want(relay.CodeNotFound, b.RemoveSecret(b.Context(), b.root, "other", made.ID))
	b.want(relay.CodeNotFound, b.RemoveSecret(b.Context(), b.alice, "hooks", made.ID)) // the secret belongs to another alias
	if list, err := b.Secrets(b.Context(), b.alice, "other"); err != nil || len(list) != 1 {
		b.Errorf("a member sees %v, %v", list, err)
	}
	_, err = b.Secrets(b.Context(), b.root, "other")
	b.want(relay.CodeNotFound, err)
	stale := b.bob
	stale.LoggedInAt = time.Now().Add(-16 * time.Minute)
	_, err = b.addSecret(stale, "other", "s", github)
	b.want(relay.CodeLoginTooOld, err)
	b.want(relay.CodeLoginTooOld, b.RemoveSecret(b.Context(), stale, "other", made.ID))
	reader := b.bob
	reader.Kind, reader.Scopes = relay.ActorToken, relay.ScopeEventsRead
	_, err = b.Secrets(b.Context(), reader, "other")
	b.want(relay.CodeForbidden, err)
	reader.Scopes = relay.ScopeAliasesRead
	_, err = b.addSecret(reader, "other", "s", github)
	b.want(relay.CodeForbidden, err)
	if name, err := b.SecretAlias(b.Context(), system, made.ID); err != nil || name != "other" {
		b.Errorf("the secret is of %q, %v", name, err)
	}
	b.must(b.RemoveSecret(b.Context(), system, "other", made.ID))
}

func anySecret(string) bool { return true }

// chosenSecrets checks that of several secrets the one with the longest path prefix is chosen, and that a
// request is signed only with a secret that has Sign.
func (b *fixture) chosenSecrets() {
	ids := map[string]string{}
	for name, s := range map[string]relay.SenderSecret{
		"all": {Provider: "github", Sign: true}, "path": {Provider: "github", Path: "/a", Sign: true}, "longer": {Provider: "github", Path: "/a/b"},
		"stripe": {Provider: "stripe", Path: "/a/b/c"},
	} {
		made, err := b.addSecret(b.alice, "hooks", "value of "+name, s)
		b.must(err)
		ids[name] = made.ID
	}
	list, err := b.OpenSecrets(b.Context(), b.hooks.ID)
	b.must(err)
	for target, want := range map[string]string{"/": "all", "/a": "path", "/ab": "path", "/a/b/c": "longer", "/a/b?x": "longer"} {
		if got := list.For("github", target); len(got) != 1 || got[0].ID != ids[want] {
			b.Errorf("%s is judged by %+v", target, got)
		}
	}
	entries, err := b.Audit(b.Context(), b.alice, 1)
	b.must(err)
	for _, c := range []struct{ provider, target, id, want, code string }{
		{"github", "/a/b/c", "", "path", ""},
		{"github", "/", "", "all", ""},
		{"github", "/", ids["path"], "path", ""},
		{"stripe", "/a/b/c", "", "", relay.CodeNoSigningSecret},
		{"github", "/a", ids["longer"], "", relay.CodeNoSigningSecret},
		{"slack", "/", "", "", relay.CodeNoSigningSecret},
		{"deepgram", "/", ids["path"], "", relay.CodeNoSigningSecret}, // deepgram does not sign: each request contains the secret itself
	} {
		got, err := b.SigningSecret(b.Context(), b.hooks.ID, c.provider, c.target, c.id, anySecret)
		switch {
		case c.code != "":
			b.want(c.code, err)
		case err != nil || got.ID != ids[c.want] || got.Value.Reveal() != "value of "+c.want:
			b.Errorf("%+v is signed by %+v, %v", c, got, err)
		}
	}
	onlyAll, err := b.SigningSecret(b.Context(), b.hooks.ID, "github", "/a/b/c", "", func(secret string) bool { return secret == "value of all" })
	if err != nil || onlyAll.ID != ids["all"] {
		b.Errorf("the secret that fits is not taken: %+v, %v", onlyAll, err)
	}
	if now, err := b.Audit(b.Context(), b.alice, 1); err != nil || now[0].ID != entries[0].ID {
		b.Errorf("nothing was signed, and the audit log has %+v, %v", now, err)
	}
	b.must(b.NoteSigned(b.Context(), b.alice, b.hooks.ID, relay.SenderSecret{ID: ids["path"], Provider: "github"}))
	entries, err = b.Audit(b.Context(), b.alice, 1)
	if err != nil || len(entries) != 1 || entries[0].Action != "secret.sign" || entries[0].Target != ids["path"] || entries[0].Actor != "user:alice" {
		b.Errorf("audit %+v, %v", entries, err)
	}
}

// secretsOfLostAlias checks that secrets are deleted when their alias is transferred or removed. A secret that
// a node of the previous version leaves behind is ignored.
func (b *fixture) secretsOfLostAlias() {
	a, err := b.CreateAlias(b.Context(), b.alice, "given", "")
	b.must(err)
	github := relay.SenderSecret{Provider: "github"}
	_, err = b.addSecret(b.alice, "given", "s", github)
	b.must(err)
	b.raw(`UPDATE aliases SET owner_id = `+fmt.Sprint(b.bob.Account)+` WHERE name = 'given'`, 1)
	open, err := b.OpenSecrets(b.Context(), a.ID)
	list, lerr := b.Secrets(b.Context(), b.bob, "given")
	if err != nil || lerr != nil || len(open)+len(list) != 0 {
		b.Errorf("the new owner gets %v %v, %v %v", open, list, err, lerr)
	}
	_, err = b.addSecret(b.bob, "given", "t", github)
	b.must(err)
	_, err = b.TransferAlias(b.Context(), b.bob, "given", "alice")
	b.must(err)
	b.raw(`DELETE FROM sender_secrets WHERE alias_id = `+fmt.Sprint(a.ID), 0)
	_, err = b.addSecret(b.alice, "given", "u", github)
	b.must(err)
	b.must(b.RemoveAlias(b.Context(), b.alice, "given"))
	b.raw(`DELETE FROM sender_secrets WHERE alias_id = `+fmt.Sprint(a.ID), 0)
}

// raw runs a statement on the database directly. It must change the given number of rows.
func (b *fixture) raw(statement string, rows int64) {
	b.Helper()
	driver, source := "postgres", b.opt.URL
	if source == "" {
		driver, source = "sqlite", "file:"+filepath.Join(b.opt.DataDir, "relay.db")+"?_pragma=foreign_keys(1)&_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, source)
	b.must(err)
	defer db.Close()
	res, err := db.Exec(statement)
	b.must(err)
	if n, err := res.RowsAffected(); err != nil || n != rows {
		b.Errorf("%s: %d rows, %v", statement, n, err)
	}
}

// setToken sets the verify token of an alias; "" removes it.
func (b *fixture) setToken(who relay.Actor, alias, token string) *relay.Alias {
	b.Helper()
	a, err := b.SetAlias(b.Context(), who, alias, setTokenTo(token))
	b.must(err)
	return a
}

func setTokenTo(token string) func(*relay.Settings) error {
	return func(s *relay.Settings) error {
		s.VerifyToken = nil
		if kept := relay.NewSecretText(token); token != "" {
			s.VerifyToken = &kept
		}
		return nil
	}
}

// readToken returns the verify token of an alias as delivery reads it: by AliasByID (one) and by AllAliases
// (all). Each is "none", "sealed" or the value.
func (b *fixture) readToken(id int64) (one, all string) {
	b.Helper()
	text := func(a *relay.Alias) string {
		switch v := a.Settings.VerifyToken; {
		case v == nil:
			return "none"
		case v.Reveal() == "":
			return "sealed"
		default:
			return v.Reveal()
		}
	}
	a, err := b.AliasByID(b.Context(), id)
	b.must(err)
	list, err := b.AllAliases(b.Context())
	b.must(err)
	return text(a), text(&list[slices.IndexFunc(list, func(a relay.Alias) bool { return a.ID == id })])
}

// verifyTokens checks that a verify token is sealed, is read only by delivery, is not listed as a secret
// of a sender, and is deleted with a transfer.
func (b *fixture) verifyTokens() {
	const token = "meatyhamhock"
	a, err := b.CreateAlias(b.Context(), b.alice, "tokens", "")
	b.must(err)
	has := func(want string) {
		b.Helper()
		if one, all := b.readToken(a.ID); one != want || all != want {
			b.Errorf("read %q and %q, want %q", one, all, want)
		}
	}
	has("none")
	if got := b.setToken(b.alice, "tokens", "another").Settings.VerifyToken; got == nil || got.Reveal() != "" {
		b.Errorf("the owner gets %v", got)
	}
	b.setToken(b.alice, "tokens", token)
	has(token)
	b.raw(`UPDATE sender_secrets SET created_by = created_by WHERE provider = 'verify-token' AND alias_id = `+fmt.Sprint(a.ID), 1)
	_, err = b.SetAlias(b.Context(), b.alice, "tokens", func(s *relay.Settings) error { s.Paused = true; return nil })
	b.must(err)
	has(token)
	list, err := b.Secrets(b.Context(), b.alice, "tokens")
	open, oerr := b.OpenSecrets(b.Context(), a.ID)
	_, uerr := b.SecretAlias(b.Context(), system, fmt.Sprint("token_", a.ID))
	if err != nil || oerr != nil || len(list)+len(open) != 0 || uerr == nil {
		b.Errorf("it is a secret of a sender: %v %v, %v %v %v", list, open, err, oerr, uerr)
	}
	b.raw(`UPDATE aliases SET owner_id = `+fmt.Sprint(b.bob.Account)+` WHERE name = 'tokens'`, 1)
	has("none") // a node of the previous version transfers an alias like this, and leaves the token of the old owner
	b.setToken(b.bob, "tokens", token)
	has(token)
	_, err = b.TransferAlias(b.Context(), b.bob, "tokens", "alice")
	b.must(err)
	has("none")
	b.setToken(b.alice, "tokens", token)
	b.setToken(b.alice, "tokens", "")
	has("none")
	b.raw(`DELETE FROM sender_secrets WHERE provider = 'verify-token'`, 0)
	b.setToken(b.alice, "hooks", token) // rotatedKeys, which runs after this check, needs a token
	b.must(b.RemoveAlias(b.Context(), b.alice, "tokens"))
}

// rotatedKeys reseals the secrets with keys[1], and checks that they open with keys[1] alone. It leaves the
// store open with keys[0] alone, which cannot open them.
func (b *fixture) rotatedKeys(keys []seal.Key) {
	before, err := b.SecretKeyUse(b.Context())
	if err != nil || before[keys[0].ID()] == 0 || len(before) != 1 {
		b.Fatalf("use %v, %v", before, err)
	}
	n := before[keys[0].ID()]
	b.opt.SecretKeys = []seal.Key{keys[1], keys[0]}
	b.reopen()
	sealed, left, err := b.ResealSecrets(b.Context(), system)
	if err != nil || sealed != n || left != 0 {
		b.Errorf("%d sealed, %d left, %v", sealed, left, err)
	}
	b.opt.SecretKeys = keys[1:]
	b.reopen()
	list, err := b.OpenSecrets(b.Context(), b.hooks.ID)
	if err != nil || len(list) == 0 || slices.ContainsFunc(list, func(s relay.OpenSecret) bool { return s.Sealed || !strings.HasPrefix(s.Value.Reveal(), "value of ") }) {
		b.Errorf("with the new key alone: %+v, %v", list, err)
	}
	if one, all := b.readToken(b.hooks.ID); one != "meatyhamhock" || all != one {
		b.Errorf("the verify token with the new key alone: %q, %q", one, all)
	}
	b.opt.SecretKeys = keys[:1]
	b.reopen()
	list, err = b.OpenSecrets(b.Context(), b.hooks.ID)
	if err != nil || len(list) == 0 || slices.ContainsFunc(list, func(s relay.OpenSecret) bool { return !s.Sealed || s.Value.Reveal() != "" }) {
		b.Errorf("with the old key alone: %+v, %v", list, err)
	}
	if one, all := b.readToken(b.hooks.ID); one != "sealed" || all != one {
		b.Errorf("the verify token with the old key alone: %q, %q", one, all)
	}
	_, err = b.SigningSecret(b.Context(), b.hooks.ID, "github", "/", "", anySecret)
	b.want(relay.CodeSecretUnavailable, err)
	sealed, left, err = b.ResealSecrets(b.Context(), system)
	if err != nil || sealed != 0 || left != n {
		b.Errorf("%d sealed, %d left, %v", sealed, left, err)
	}
	_, _, err = b.ResealSecrets(b.Context(), b.alice)
	b.want(relay.CodeForbidden, err)
}

// secretsWithoutKey checks a node that has no keys in its settings and serves its store alone. The first
// secret makes a key. If that key is lost, no other key replaces it.
func secretsWithoutKey(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	github := relay.SenderSecret{Provider: "github"}
	path := filepath.Join(b.opt.DataDir, store.SecretKeyFile)
	if _, err := os.Stat(path); err == nil {
		t.Fatal("a key was made before the first secret")
	}
	_, err := b.addSecret(b.alice, "hooks", "s", github)
	b.must(err)
	b.reopen()
	list, err := b.OpenSecrets(t.Context(), b.hooks.ID)
	if err != nil || len(list) != 1 || list[0].Value.Reveal() != "s" {
		t.Fatalf("%+v, %v", list, err)
	}
	b.setToken(b.alice, "hooks", "t")
	key, err := os.ReadFile(path)
	b.must(err)
	b.must(os.Remove(path))
	b.reopen()
	_, err = b.addSecret(b.alice, "hooks", "s", github)
	b.want(relay.CodeSecretUnavailable, err)
	_, err = b.SetAlias(t.Context(), b.alice, "hooks", setTokenTo("u"))
	b.want(relay.CodeSecretUnavailable, err)
	if _, err := os.Stat(path); err == nil {
		t.Error("the lost key was replaced")
	}
	b.must(os.WriteFile(path, key, 0o600))
	_, err = b.addSecret(b.alice, "hooks", "s", github)
	b.must(err)
}

// verdicts checks that a verdict is stored with its event, can be used to filter lists, and is replaced by a
// later one. When a secret is added, the stored events of its sender are verified with it.
func (b *fixture) verdicts() {
	const value = "the secret"
	mac := hmac.New(sha256.New, []byte(value))
	mac.Write([]byte("body"))
	head := "POST /hook HTTP/1.1\r\nHost: hooks.localhost\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=" + hex.EncodeToString(mac.Sum(nil)) + "\r\n\r\n"
	signed := func(s *relay.Signature) relay.ID {
		e := b.newEvent(b.hooks, relay.StateDelivering, "/hook", "body")
		e.Request.Head, e.Provider, e.Signature = []byte(head), relay.Provider{Name: "github"}, s
		b.ok(b.Accept(e))
		b.ok(b.Finish(e.ID, ended(1, relay.StateDelivered, 200, "x"), ""))
		return e.ID
	}
	unjudged := signed(nil)
	invalid := signed(&relay.Signature{Provider: "github", Verdict: "invalid", Reason: "wrong-secret", Message: "m"})
	plain := b.capture(b.hooks, "/plain", "body", 200)
	reads := func(verdict string, want ...relay.ID) {
		b.Helper()
		b.same("signature="+verdict, b.walk(b.alice, relay.Filter{Alias: "hooks", Signature: verdict}), want)
	}
	reads("invalid", invalid)
	reads("unchecked", unjudged)
	reads("valid")
	if fits, err := b.Matches(b.Context(), b.alice, plain, relay.Filter{Signature: "unchecked"}); err != nil || fits {
		b.Errorf("an event without a scheme is unchecked: %v, %v", fits, err)
	}
	made, err := b.addSecret(b.alice, "hooks", value, relay.SenderSecret{Provider: "github"})
	b.must(err)
	reads("invalid")
	reads("unchecked")
	reads("valid", invalid, unjudged)
	if got := b.read(invalid).Signature; got == nil || got.SecretID != made.ID || got.Reason != "ok" || got.Provider != "github" {
		b.Errorf("kept %+v", got)
	}
	b.want(relay.CodeForbidden, b.StoreSignature(b.Context(), relay.Actor{Kind: relay.ActorToken, Account: b.alice.Account, Scopes: relay.ScopeAliasesRead}, invalid, &relay.Signature{Verdict: "missing"}))
	b.must(b.StoreSignature(b.Context(), b.bob, invalid, &relay.Signature{Verdict: "missing"})) // bob has no access to the event, so nothing is stored
	reads("valid", invalid, unjudged)
	b.must(b.StoreSignature(b.Context(), b.alice, invalid, &relay.Signature{Verdict: "expired", Reason: "time-too-old", Provider: "github"}))
	reads("expired", invalid)
	b.eventually("the time of the fit is noted", func() bool {
		list, err := b.Secrets(b.Context(), b.alice, "hooks")
		return err == nil && len(list) == 1 && !list[0].LastValidAt.IsZero()
	})
}
