package sshgate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/relaytest"
)

// token adds an API token of bob's account to the store.
func (b *fixture) token(secret string, change ...func(*relay.Actor)) string {
	who := relay.Actor{Account: 2, AccountName: "bob", Kind: relay.ActorToken, Name: "ci", Scopes: relay.AllScopes, Credential: "tok_" + secret}
	for _, f := range change {
		f(&who)
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.store.tokens[secret] = who
	return secret
}

// typing returns an auth method that answers the prompts for a token with the secrets, one after another, and further
// prompts with the last secret.
func typing(secrets ...string) ssh.AuthMethod {
	return ssh.RetryableAuthMethod(ssh.KeyboardInteractive(func(_, _ string, questions []string, echos []bool) ([]string, error) {
		if len(questions) != 1 || questions[0] != "Token: " || echos[0] {
			return nil, os.ErrInvalid
		}
		answer := secrets[0]
		if len(secrets) > 1 {
			secrets = secrets[1:]
		}
		return []string{answer}, nil
	}), 5)
}

func TestTokenRegistersTheKeyProvenNext(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	stranger := b.newKey("stranger", 0)
	fp := ssh.FingerprintSHA256(stranger.signer.PublicKey())
	_, banner, err := b.dial("link", typing("rly_wrong", b.token("rly_good")), ssh.PublicKeys(stranger.signer))
	if err != nil {
		t.Fatalf("%v, banner %q", err, banner)
	}
	for _, want := range []string{"this token is unknown", "the token is good", "key " + fp + " is registered now", "next: ssh -N"} {
		if strings.Count(banner, want) != 1 {
			t.Errorf("%q is not told once: %q", want, banner)
		}
	}
	forwards(t, b.mustDial(stranger), "a", 80)
	if got := b.online("a").Info().User; got != "bob" {
		t.Errorf("forwarded as %s", got)
	}
}

// TestTokenAloneIsNoLogin: a client that gives a valid token, but proves no key, is not logged in, and no key is
// registered.
func TestTokenAloneIsNoLogin(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	secret := b.token("rly_good")
	if _, _, err := b.dial("link", typing(secret)); err == nil {
		t.Error("logged in by a token")
	}
	// A key that is offered with the signature of another key does not become registered.
	stranger, other := b.newKey("stranger", 0), b.newKey("other", 0)
	if _, _, err := b.dial("link", typing(secret), ssh.PublicKeys(swapped{stranger.signer.PublicKey(), other.signer})); err == nil {
		t.Error("logged in with a signature of another key")
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if len(b.store.keys) != 1 {
		t.Errorf("%d keys registered", len(b.store.keys)-1)
	}
}

// TestTokenNeverMovesAKey: if a client gives bob's token and then proves alice's key, it is logged in
// as alice.
func TestTokenNeverMovesAKey(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	secret := b.token("rly_good")
	_, banner, err := b.dial("link", typing(secret), ssh.PublicKeys(b.alice.signer))
	if err != nil || !strings.Contains(banner, "belongs to alice; nothing to do") {
		t.Fatalf("%v, %q", err, banner)
	}
	forwards(t, b.mustDial(b.alice), "a", 80)
	if got := b.online("a").Info().User; got != "alice" {
		t.Errorf("came in as %s", got)
	}
}

func TestTokensThatMayNot(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*relay.Actor){
		"no account scope": func(a *relay.Actor) { a.Scopes = relay.AllScopes &^ relay.ScopeAccount },
		"one alias":        func(a *relay.Actor) { a.Alias = 7 },
	} {
		b := newFixture(t)
		secret := b.token("rly_narrow", change)
		_, banner, err := b.dial("link", typing(secret), ssh.PublicKeys(b.newKey("stranger", 0).signer))
		if err == nil || !strings.Contains(banner, "may not register keys") {
			t.Errorf("%s: %v, %q", name, err, banner)
		}
	}
}

// TestTokenTries: a connection is asked for a token three times at most, and an empty answer ends the
// prompts.
func TestTokenTries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		user, typed string
		asked       int
	}{{"link", "rly_wrong", tokenTries}, {"link", "", 1}, {"x", "rly_wrong", 0}} {
		b := newFixture(t)
		asked := 0
		_, banner, err := b.dial(c.user, ssh.RetryableAuthMethod(ssh.KeyboardInteractive(func(string, string, []string, []bool) ([]string, error) {
			asked++
			return []string{c.typed}, nil
		}), 8))
		if err == nil || asked != c.asked || strings.Count(banner, "none was offered") != 1 {
			t.Errorf("%v: asked %d times: %v, %q", c, asked, err, banner)
		}
	}
}

// TestPromptIsBounded: a connection with a prompt that nobody answers is closed after EnrolTime at the latest, even
// if the prompt is repeated.
func TestPromptIsBounded(t *testing.T) {
	t.Parallel()
	// If the process pauses for EnrolTime before the prompt, the connection is closed without one.
	b := newFixture(t, func(o *Options) { o.EnrolTime, o.HandshakeTimeout = 3*time.Second, 60*time.Second })
	asked, gone, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(answered)
		_, _, _ = b.dial("link", ssh.KeyboardInteractive(func(string, string, []string, []bool) ([]string, error) {
			close(asked)
			<-gone
			return []string{"x"}, nil
		}))
	}()
	select {
	case <-asked:
	case <-answered:
		t.Fatal("the client was not asked")
	}
	eventually(t, 30*time.Second, "closed", func() bool { return b.srv.Stats().Connections == 0 })
	close(gone)
	<-answered
}

// TestTokenWithOpenSSH enters the token in OpenSSH through SSH_ASKPASS.
func TestTokenWithOpenSSH(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	stranger := b.newKey("stranger", 0)
	askpass := filepath.Join(b.dir, "askpass")
	relaytest.WriteScript(t, askpass, "echo "+b.token("rly_good"))
	p := b.run("env", "SSH_ASKPASS="+askpass, "SSH_ASKPASS_REQUIRE=force", need(t, "ssh", "openssh-client"), "-F", "/dev/null", "-p", b.port,
		"-i", stranger.path, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "PreferredAuthentications=keyboard-interactive,publickey", "link@127.0.0.1")
	if code := p.code(t); code != 0 || !contains(p.out, "belongs to bob") {
		t.Errorf("exit %d, %q, %s", code, p.out, p.err)
	}
}
