package sshgate

import (
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// noAnswers is the keyboard-interactive method that relay up tries after its last key. It returns empty
// answers.
func noAnswers(_, _ string, questions []string, _ []bool) ([]string, error) {
	return make([]string, len(questions)), nil
}

// TestStoreAwayIsNoRefusedLogin: while Postgres is unavailable, a login ends with a closed connection and not
// with a refused key, because relay up retries only after a closed connection. That also holds if the client
// tries another method after its last key, and if it uses all its tries.
func TestStoreAwayIsNoRefusedLogin(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.mu.Lock()
	b.store.down = true
	b.store.mu.Unlock()
	for name, keys := range map[string]int{"one key": 1, "three keys": 3, "more keys than tries": maxAuthTries + 2} {
		signers := []ssh.Signer{b.alice.signer}
		for len(signers) < keys {
			signers = append(signers, b.newKey("stranger", 0).signer)
		}
		_, banner, err := b.dial("x", ssh.PublicKeys(signers...), ssh.KeyboardInteractive(noAnswers))
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want a broken line", name, err)
		}
		if strings.Count(banner, "keys cannot be looked up right now") != 1 || strings.Contains(banner, "register") {
			t.Errorf("%s: banner %q", name, banner)
		}
	}
	b.store.mu.Lock()
	b.store.down = false
	b.store.mu.Unlock()
	b.mustDial(b.alice)
}

// TestFullAccountIsNoRefusedLogin: if the account has no free connection slot, a login with a valid key ends
// with a closed connection, and not with a refused key. A second key may still log in.
func TestFullAccountIsNoRefusedLogin(t *testing.T) {
	t.Parallel()
	b := newFixture(t, func(o *Options) { o.MaxPerAccount = 1 })
	b.mustDial(b.alice)
	_, banner, err := b.dial("x", ssh.PublicKeys(b.alice.signer), ssh.KeyboardInteractive(noAnswers))
	if !errors.Is(err, io.EOF) || strings.Count(banner, "this account has too many connections open") != 1 {
		t.Errorf("%v, banner %q", err, banner)
	}
	// Another key of the client may belong to another account.
	if _, _, err := b.dial("x", ssh.PublicKeys(b.alice.signer, b.newKey("bob", 2).signer)); err != nil {
		t.Errorf("the second key: %v", err)
	}
}

// TestStoreAwayIsShownByRealClients: OpenSSH, Dropbear and PuTTY show that keys cannot be looked up at the
// moment. relayd therefore closes the connection only after the client has read this message.
func TestStoreAwayIsShownByRealClients(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.store.mu.Lock()
	b.store.down = true
	b.store.mu.Unlock()
	forward := []string{"-N", "-R", "a:80:127.0.0.1:1", "x@127.0.0.1"}
	for name, p := range map[string]*process{
		"openssh": b.openssh(b.alice, forward...), "dropbear": b.dropbear(b.alice, forward...), "plink": b.plink(b.alice, forward...),
	} {
		if code := p.code(t); code == 0 || !contains(p.err, "keys cannot be looked up right now") {
			t.Errorf("%s: exit %d, %s", name, code, p.err)
		}
	}
}
