package storetest

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/store"
)

func testCredentials(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	t.Run("keys", func(t *testing.T) { b.with(t).keys() })
	t.Run("tokens", func(t *testing.T) { b.with(t).tokens() })
	t.Run("token renewed by a call", func(t *testing.T) { b.with(t).tokenRenewedByCall() })
	t.Run("renewed tokens", func(t *testing.T) { b.with(t).renewedTokens() })
	t.Run("narrow tokens", func(t *testing.T) { b.with(t).narrowTokens() })
	t.Run("logins", func(t *testing.T) { b.with(t).logins() })
	t.Run("invites", func(t *testing.T) { b.with(t).invites() })
	t.Run("idempotency", func(t *testing.T) { b.with(t).idempotency() })
}

// authorized returns an authorized_keys line of a new key.
func (b *fixture) authorized(key any) string {
	b.Helper()
	p, err := ssh.NewPublicKey(key)
	b.must(err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p)))
}

func (b *fixture) ed25519() string {
	b.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	b.must(err)
	return b.authorized(public)
}

func (b *fixture) keys() {
	ctx := b.Context()
	line := b.ed25519()
	k, err := b.AddKey(ctx, b.alice, "", "", line+" alice@laptop\n")
	b.must(err)
	if k.Name != "alice@laptop" || k.AccountName != "alice" || k.Type != "ssh-ed25519" || k.AuthorizedKey != line || !strings.HasPrefix(k.ID, "key_") {
		b.Errorf("key %+v", k)
	}
	_, err = b.AddKey(ctx, b.bob, "", "mine", "\ufeff"+line) // some Windows editors add a byte order mark
	b.want(relay.CodeConflict, err)
	_, err = b.AddKey(ctx, b.bob, "alice", "trojan", b.ed25519())
	b.want(relay.CodeForbidden, err)
	b.goodAndBadKeys(line)
	who, err := b.KeyOwner(ctx, k.Fingerprint)
	if err != nil || who.Account != b.alice.Account || who.String() != "ssh:alice" || who.Credential != k.ID {
		b.Errorf("owner %+v, %v", who, err)
	}
	b.must(b.StillValid(ctx, who))
	_, err = b.Keys(ctx, b.bob, "alice")
	b.want(relay.CodeForbidden, err)
	b.want(relay.CodeNotFound, b.RemoveKey(ctx, b.bob, k.ID))
	b.eventually("use of the key is noted", func() bool {
		list, err := b.Keys(ctx, b.alice, "")
		return err == nil && len(list) > 0 && !list[0].LastUsedAt.IsZero()
	})
	b.must(b.RemoveKey(ctx, b.alice, k.Fingerprint))
	b.want(relay.CodeNotFound, b.RemoveKey(ctx, b.alice, k.ID))
	_, err = b.KeyOwner(ctx, k.Fingerprint)
	b.want(relay.CodeNotFound, err)
	b.want(relay.CodeNotFound, b.StillValid(ctx, who))
}

func (b *fixture) goodAndBadKeys(line string) {
	ctx := b.Context()
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.must(err)
	_, err = b.AddKey(ctx, b.root, "bob", "curve", b.authorized(&curve.PublicKey))
	b.must(err)
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	b.must(err)
	_, err = b.AddKey(ctx, b.bob, "", "large", b.authorized(&large.PublicKey))
	b.must(err)
	small := *large
	small.PublicKey.N = small.Primes[0] // this key has 1024 bits
	for _, bad := range []string{
		"", "ssh-ed25519", "ssh-ed25519 AAAA", line + "\n" + b.ed25519(), `command="id" ` + b.ed25519(), "-----BEGIN OPENSSH PRIVATE KEY-----",
		b.authorized(&small.PublicKey),
	} {
		_, err := b.AddKey(ctx, b.alice, "", "bad", bad)
		b.want(relay.CodeValidationFailed, err)
	}
	list, err := b.Keys(ctx, system, "bob")
	if err != nil || len(list) != 2 {
		b.Errorf("bob has %d keys, %v", len(list), err)
	}
	all, err := b.Keys(ctx, system, "")
	if err != nil || len(all) != 3 {
		b.Errorf("there are %d keys, %v", len(all), err)
	}
}

func (b *fixture) tokens() {
	ctx := b.Context()
	made, secret, err := b.CreateToken(ctx, b.alice, relay.Token{Name: "ci", Scopes: relay.ScopeEventsRead, Alias: "hooks", ExpiresAt: time.Now().Add(time.Hour)})
	b.must(err)
	if !strings.HasPrefix(secret, "rly_") || len(secret) != 4+43 || made.Name != "ci" || made.Alias != "hooks" || made.ExpiresAt.IsZero() {
		b.Errorf("token %+v with %d characters", made, len(secret))
	}
	who, err := b.TokenOwner(ctx, secret)
	if err != nil || who.String() != "token:ci" || who.Alias != b.hooks.ID || who.AliasName != "hooks" || who.Scopes != relay.ScopeEventsRead {
		b.Errorf("owner %+v, %v", who, err)
	}
	for _, wrong := range []string{"", "rly_", secret[:len(secret)-1], secret + "x", strings.ToUpper(secret)} {
		_, err := b.TokenOwner(ctx, wrong)
		b.want(relay.CodeNotFound, err)
	}
	_, _, err = b.CreateToken(ctx, b.alice, relay.Token{Alias: "other"})
	b.want(relay.CodeNotFound, err)
	_, _, err = b.CreateToken(ctx, b.alice, relay.Token{ExpiresAt: time.Now().Add(-time.Second)})
	b.want(relay.CodeValidationFailed, err)
	_, _, err = b.CreateToken(ctx, b.alice, relay.Token{AccountName: "bob"})
	b.want(relay.CodeForbidden, err)
	b.want(relay.CodeNotFound, b.RemoveToken(ctx, b.bob, made.ID))
	b.must(b.RemoveToken(ctx, b.alice, made.ID))
	b.want(relay.CodeNotFound, b.RemoveToken(ctx, b.alice, made.ID))
	b.want(relay.CodeNotFound, b.StillValid(ctx, who))
}

// renewedTokens checks that each use of a token with a renewal extends the token. A token without a renewal
// keeps its end.
func (b *fixture) renewedTokens() {
	ctx := b.Context()
	made := map[string]relay.Token{}
	for name, renewal := range map[string]time.Duration{"renewed": time.Hour, "fixed": 0} {
		token, secret, err := b.CreateToken(ctx, b.alice, relay.Token{Name: name, ExpiresAt: time.Now().Add(30 * time.Minute), Renewal: renewal})
		b.must(err)
		made[name] = token
		_, err = b.TokenOwner(ctx, secret)
		b.must(err)
	}
	expiry := func(name string) time.Time {
		list, err := b.Tokens(ctx, b.alice, "")
		b.must(err)
		for _, t := range list {
			if t.ID == made[name].ID && !t.LastUsedAt.IsZero() {
				return t.ExpiresAt
			}
		}
		return time.Time{}
	}
	b.eventually("the use of a token is noted", func() bool { return !expiry("renewed").IsZero() && !expiry("fixed").IsZero() })
	if now := expiry("renewed"); now.Sub(made["renewed"].ExpiresAt) < 25*time.Minute {
		b.Errorf("a used token expires at %v, it was made to expire at %v", now, made["renewed"].ExpiresAt)
	}
	if now := expiry("fixed"); !now.Equal(made["fixed"].ExpiresAt) {
		b.Errorf("a token of a fixed expiry expires at %v, not %v", now, made["fixed"].ExpiresAt)
	}
}

// tokenRenewedByCall checks that RenewToken extends the token of its actor by its original lifetime, counted from
// the call. A token that was removed or has expired is not extended.
func (b *fixture) tokenRenewedByCall() {
	ctx := b.Context()
	made, secret, err := b.CreateToken(ctx, b.alice, relay.Token{Name: "short", ExpiresAt: time.Now().Add(time.Hour)})
	b.must(err)
	lifetime := made.ExpiresAt.Sub(made.CreatedAt)
	who, err := b.TokenOwner(ctx, secret)
	b.must(err)
	for range 3 {
		before := time.Now()
		renewed, err := b.RenewToken(ctx, who)
		b.must(err)
		if first, last := before.Add(lifetime-time.Second), time.Now().Add(lifetime+time.Second); renewed.ID != made.ID ||
			renewed.ExpiresAt.Before(first) || renewed.ExpiresAt.After(last) || !renewed.ExpiresAt.After(made.ExpiresAt) {
			b.Errorf("a token of %v that expires at %v was renewed to %v", lifetime, made.ExpiresAt, renewed.ExpiresAt)
		}
		made.ExpiresAt = renewed.ExpiresAt
	}
	b.must(b.RemoveToken(ctx, b.alice, made.ID))
	_, err = b.RenewToken(ctx, who)
	b.want(relay.CodeNotFound, err)
	_, secret, err = b.CreateToken(ctx, b.alice, relay.Token{Name: "ended", ExpiresAt: time.Now().Add(time.Hour)})
	b.must(err)
	who, err = b.TokenOwner(ctx, secret)
	b.must(err)
	b.raw(`UPDATE tokens SET expires_at = 1 WHERE id = '`+who.Credential+`'`, 1) // the token expires in the meantime
	_, err = b.RenewToken(ctx, who)
	b.want(relay.CodeNotFound, err)
	_, secret, err = b.CreateToken(ctx, b.alice, relay.Token{Name: "forever"})
	b.must(err)
	who, err = b.TokenOwner(ctx, secret)
	b.must(err)
	if renewed, err := b.RenewToken(ctx, who); err != nil || !renewed.ExpiresAt.IsZero() {
		b.Errorf("a token without an expiry was renewed to %v, %v", renewed.ExpiresAt, err)
	}
	who.Scopes = relay.ScopeEventsRead
	_, err = b.RenewToken(ctx, who)
	b.want(relay.CodeForbidden, err)
	_, err = b.RenewToken(ctx, b.alice)
	b.want(relay.CodeConflict, err)
}

// narrowTokens checks that a token cannot create a token with more rights than its own.
func (b *fixture) narrowTokens() {
	ctx := b.Context()
	_, secret, err := b.CreateToken(ctx, b.alice, relay.Token{
		Name: "maker", Scopes: relay.ScopeAccount | relay.ScopeEventsRead, ExpiresAt: time.Now().Add(time.Hour),
	})
	b.must(err)
	who, err := b.TokenOwner(ctx, secret)
	b.must(err)
	soon := time.Now().Add(time.Minute)
	for _, wide := range []relay.Token{
		{Scopes: relay.AllScopes, ExpiresAt: soon}, {Scopes: relay.ScopeEventsReplay, ExpiresAt: soon}, {ExpiresAt: soon.Add(2 * time.Hour)}, {},
	} {
		_, _, err := b.CreateToken(ctx, who, wide)
		b.want(relay.CodeForbidden, err)
	}
	made, _, err := b.CreateToken(ctx, who, relay.Token{ExpiresAt: soon})
	if err != nil || made.Scopes != who.Scopes {
		b.Errorf("made %+v, %v", made, err)
	}
	_, limited, err := b.CreateToken(ctx, b.alice, relay.Token{Alias: "hooks"})
	b.must(err)
	one, err := b.TokenOwner(ctx, limited)
	b.must(err)
	_, _, err = b.CreateToken(ctx, one, relay.Token{Alias: "hooks"})
	b.want(relay.CodeForbidden, err)
	_, err = b.AddKey(ctx, one, "", "k", b.ed25519())
	b.want(relay.CodeForbidden, err)
	_, err = b.CreateAlias(ctx, one, "wider", "")
	b.want(relay.CodeForbidden, err)
	_, err = b.Tokens(ctx, one, "")
	b.want(relay.CodeForbidden, err)
	_, _, err = b.CreateShare(ctx, who, b.NewID(), relay.Share{})
	b.want(relay.CodeForbidden, err)
	_, err = b.BeginReplay(ctx, who, b.NewID(), false)
	b.want(relay.CodeForbidden, err)
}

func (b *fixture) logins() {
	ctx := b.Context()
	_, err := b.CreateLoginLink(ctx, b.root, "alice", 0)
	b.want(relay.CodeForbidden, err)
	_, err = b.CreateInvite(ctx, b.alice, "bob", 0)
	b.want(relay.CodeForbidden, err)
	link, err := b.CreateLoginLink(ctx, system, "alice", 0)
	b.must(err)
	for range 2 {
		a, err := b.LoginLink(ctx, link)
		if err != nil || a.Name != "alice" {
			b.Errorf("link leads to %+v, %v", a, err)
		}
	}
	var wg sync.WaitGroup
	secrets := make(chan string, 8)
	for range 8 {
		wg.Go(func() {
			if s, _, err := b.UseLoginLink(ctx, link, "127.0.0.1", "browser\x00"); err == nil {
				secrets <- s
			} else {
				b.want(relay.CodeNotFound, err)
			}
		})
	}
	wg.Wait()
	if close(secrets); len(secrets) != 1 {
		b.Fatalf("a one-time link was used %d times", len(secrets))
	}
	secret := <-secrets
	who, err := b.SessionOwner(ctx, secret)
	if err != nil || who.String() != "user:alice" || who.ExpiresAt.IsZero() {
		b.Errorf("session of %+v, %v", who, err)
	}
	list, err := b.Sessions(ctx, who)
	if err != nil || len(list) != 1 || list[0].ID != who.Credential || list[0].Remote != "127.0.0.1" {
		b.Errorf("sessions %+v, %v", list, err)
	}
	b.want(relay.CodeNotFound, b.RemoveSession(ctx, b.bob, who.Credential))
	b.must(b.EndSession(ctx, secret))
	b.must(b.EndSession(ctx, secret))
	_, err = b.SessionOwner(ctx, secret)
	b.want(relay.CodeNotFound, err)
	b.want(relay.CodeNotFound, b.StillValid(ctx, who))

	invite, err := b.CreateInvite(ctx, b.root, "bob", time.Microsecond)
	b.must(err)
	b.eventually("an invite expires", func() bool { _, err := b.LoginLink(ctx, invite); return err != nil })
	_, _, err = b.UseLoginLink(ctx, invite, "", "")
	b.want(relay.CodeNotFound, err)
}

func (b *fixture) idempotency() {
	ctx, who := b.Context(), b.alice
	who.Credential = "tok_1"
	begin := func(key, target string) (int, string, error) {
		status, body, err := b.BeginIdempotent(ctx, who, key, target)
		return status, string(body), err
	}
	status, _, err := begin("k", "POST /a")
	if status != 0 || err != nil {
		b.Errorf("first call: %d, %v", status, err)
	}
	_, _, err = begin("k", "POST /a")
	b.want(relay.CodeConflict, err)
	b.must(b.EndIdempotent(ctx, who, "k", 202, []byte("{}")))
	status, body, err := begin("k", "POST /a")
	if status != 202 || body != "{}" || err != nil {
		b.Errorf("same call: %d %q %v", status, body, err)
	}
	_, _, err = begin("k", "POST /b")
	b.want(relay.CodeValidationFailed, err)
	who.Credential = "tok_2"
	if status, _, err = begin("k", "POST /b"); status != 0 || err != nil {
		b.Errorf("another credential: %d, %v", status, err)
	}
	b.must(b.EndIdempotent(ctx, who, "k", 0, nil))
	if status, _, err = begin("k", "POST /c"); status != 0 || err != nil {
		b.Errorf("after a failure: %d, %v", status, err)
	}
}
