package client

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"relay/cli"
)

func TestLoginRefused(t *testing.T) {
	d := newFakeRelay(t)
	d.config.PublicKeyCallback = func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		return nil, &ssh.BannerError{Err: errors.New("unknown"), Message: "key is not registered\nadd it\x1b[2J\n"}
	}
	dialer, _ := newDialer(t, d.listen())
	err := dialOnce(t, dialer)
	if exitOfError(err) != cli.ExitRefused || !strings.Contains(err.Error(), "key is not registered") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(err.(*cli.Error).Hint, "SHA256:") {
		t.Errorf("hint %q", err.(*cli.Error).Hint)
	}
}

func TestServerThatHangsUpIsUnreachable(t *testing.T) {
	ln, _ := newListener(t)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	dialer, _ := newDialer(t, ln.Addr().String())
	if err := dialOnce(t, dialer); exitOfError(err) != cli.ExitUnreachable {
		t.Error(err)
	}
}

func TestEncryptedKeyAsksOnceAndOnlyWhenWanted(t *testing.T) {
	d := newFakeRelay(t)
	addr := d.listen()
	dialer, _ := newDialer(t, addr)
	dialer.Identity = newKeyFile(t, "secret")
	if err := dialOnce(t, dialer); exitOfError(err) != cli.ExitUsage {
		t.Errorf("without a terminal: %v", err)
	}
	dialer, _ = newDialer(t, addr)
	dialer.Identity = newKeyFile(t, "secret")
	person := &fakePrompter{pass: []string{"wrong", "secret"}}
	dialer.Prompter = person
	for range 2 {
		if err := dialOnce(t, dialer); err != nil {
			t.Fatal(err)
		}
	}
	if person.asked != 2 {
		t.Errorf("asked %d times", person.asked)
	}
}

// TestWrongPassphraseIsTheReason: after a wrong passphrase, the error names the passphrase. The relay only
// knows that no key was offered.
func TestWrongPassphraseIsTheReason(t *testing.T) {
	d := newFakeRelay(t)
	d.config.KeyboardInteractiveCallback = func(ssh.ConnMetadata, ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
		return nil, &ssh.BannerError{Err: errors.New("no"), Message: "no key was offered\n"}
	}
	dialer, talk := newDialer(t, d.listen())
	dialer.Identity, dialer.Prompter = newKeyFile(t, "secret"), &fakePrompter{pass: []string{"a", "b", "c"}}
	err := dialOnce(t, dialer)
	if exitOfError(err) != cli.ExitRefused || !strings.HasPrefix(err.Error(), "that is not the passphrase of the key ") {
		t.Errorf("%v", err)
	}
	if strings.Count(talk.String(), "that is not the passphrase") != 2 {
		t.Errorf("said %q", talk)
	}
}

func TestPublicHalfIsNoIdentity(t *testing.T) {
	dialer, _ := newDialer(t, "127.0.0.1:1")
	dialer.Identity += ".pub"
	keep(t, dialer.Identity, "ssh-ed25519 AAAA x")
	var e *cli.Error
	if err := dialOnce(t, dialer); !errors.As(err, &e) || e.Exit != cli.ExitUsage || !strings.HasSuffix(e.Hint, strings.TrimSuffix(dialer.Identity, ".pub")) {
		t.Errorf("%+v", e)
	}
}

func TestKeyThatIsNotWantedIsNotOpened(t *testing.T) {
	d := newFakeRelay(t)
	d.config.PublicKeyCallback = func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		return nil, errors.New("no")
	}
	dialer, _ := newDialer(t, d.listen())
	dialer.Identity, dialer.Prompter = newKeyFile(t, "secret"), &fakePrompter{}
	if err := dialOnce(t, dialer); exitOfError(err) != cli.ExitRefused {
		t.Errorf("a key that is not registered: %v", err)
	}
}

func TestDefaultKeysAgentAndNone(t *testing.T) {
	d := newFakeRelay(t)
	addr := d.listen()
	dialer, _ := newDialer(t, addr)
	dialer.Identity = ""
	if err := dialOnce(t, dialer); exitOfError(err) != cli.ExitRefused || !strings.Contains(err.Error(), "no SSH key") {
		t.Errorf("without keys: %v", err)
	}
	text, _ := os.ReadFile(newKeyFile(t, ""))
	keep(t, filepath.Join(dialer.Home, ".ssh", "id_ed25519"), string(text))
	if err := dialOnce(t, dialer); err != nil {
		t.Errorf("default key: %v", err)
	}
	dialer, _ = newDialer(t, addr)
	dialer.Identity, dialer.Agent = "", startAgent(t)
	if err := dialOnce(t, dialer); err != nil {
		t.Errorf("agent: %v", err)
	}
	dialer, talk := newDialer(t, addr)
	dialer.Identity, dialer.Agent = "", "/nonexistent/agent"
	if err := dialOnce(t, dialer); exitOfError(err) != cli.ExitRefused || !strings.Contains(talk.String(), "agent") {
		t.Errorf("agent that is gone: %v, said %q", err, talk)
	}
}

func startAgent(t *testing.T) string {
	keys := agent.NewKeyring()
	text, _ := os.ReadFile(newKeyFile(t, ""))
	raw, err := ssh.ParseRawPrivateKey(text)
	if err == nil {
		err = keys.Add(agent.AddedKey{PrivateKey: raw})
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "agent")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = agent.ServeAgent(keys, c)
			c.Close()
		}
	}()
	return path
}

func TestMissingIdentity(t *testing.T) {
	d := newFakeRelay(t)
	dialer, _ := newDialer(t, d.listen())
	dialer.Identity = "/nonexistent/key"
	if err := dialOnce(t, dialer); exitOfError(err) != cli.ExitUsage {
		t.Error(err)
	}
}
