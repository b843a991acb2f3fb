package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"relay/cli"
	"relay/link"
)

func dialOnce(t *testing.T, d *Dialer) error {
	t.Helper()
	conn, err := d.Dial(context.Background())
	if err == nil {
		conn.Close(link.Unneeded)
	}
	return err
}

func TestUnknownLoopbackHostIsAcceptedAndKept(t *testing.T) {
	key := newSigner(t)
	d := newFakeRelay(t, key)
	addr := d.listen()
	dialer, talk := newDialer(t, addr)
	if err := dialOnce(t, dialer); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(talk.String(), ssh.FingerprintSHA256(key.PublicKey())) {
		t.Errorf("said %q", talk)
	}
	kept, err := os.ReadFile(filepath.Join(dialer.StateDir, "known_hosts"))
	if want := knownhosts.Line([]string{addr}, key.PublicKey()) + "\n"; err != nil || string(kept) != want {
		t.Errorf("kept %q, %v; want %q", kept, err, want)
	}
	before := len(talk.lines)
	if err := dialOnce(t, dialer); err != nil || len(talk.lines) != before {
		t.Errorf("the second time: %v, said %q", err, talk)
	}
}

func TestChangedHostKeyStopsBeforeLogin(t *testing.T) {
	d := newFakeRelay(t)
	addr := d.listen()
	dialer, _ := newDialer(t, addr)
	keep(t, filepath.Join(dialer.Home, ".ssh", "known_hosts"), knownhosts.Line([]string{addr}, newSigner(t).PublicKey()))
	err := dialOnce(t, dialer)
	if exitOfError(err) != cli.ExitRefused || !strings.Contains(err.Error(), "changed") {
		t.Errorf("%v", err)
	}
	if e := err.(*cli.Error); !strings.Contains(e.Hint, filepath.Join(dialer.Home, ".ssh", "known_hosts")) {
		t.Errorf("hint %q", e.Hint)
	}
	d.close()
	if n := d.auths.Load(); n != 0 {
		t.Errorf("%d tries to log in at a host that is not the known one", n)
	}
}

func keep(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPinnedHostKey(t *testing.T) {
	key := newSigner(t)
	d := newFakeRelay(t, key)
	addr := d.listen()
	for name, c := range map[string]struct {
		pin  string
		exit int
	}{
		"right":   {ssh.FingerprintSHA256(key.PublicKey()), -1},
		"padded":  {ssh.FingerprintSHA256(key.PublicKey()) + "=", -1},
		"another": {ssh.FingerprintSHA256(newSigner(t).PublicKey()), cli.ExitRefused},
		"a part":  {ssh.FingerprintSHA256(key.PublicKey())[:30], cli.ExitRefused},
		"no sum":  {"SHA256:", cli.ExitRefused},
	} {
		dialer, _ := newDialer(t, addr)
		dialer.HostKey = c.pin
		if err := dialOnce(t, dialer); exitOfError(err) != c.exit {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dialer.StateDir, "known_hosts")); err == nil {
			t.Errorf("%s: a pinned key was kept", name)
		}
	}
}

func TestKeyTypesOfTheKnownEntriesAreAskedFor(t *testing.T) {
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	first := newSigner(t)
	d := newFakeRelay(t, first, second)
	addr := d.listen()
	// Each key is tried as the known one: a client that does not ask for the type of the known key is shown the
	// same key both times, and would pass with that one.
	for _, known := range []ssh.Signer{first, second} {
		dialer, _ := newDialer(t, addr)
		lines := "# a comment\n" + addr + " ssh-unheard-of AAAA\n" + knownhosts.Line([]string{addr}, known.PublicKey())
		keep(t, filepath.Join(dialer.Home, ".ssh", "known_hosts"), lines)
		if err := dialOnce(t, dialer); err != nil {
			t.Errorf("%s: %v", known.PublicKey().Type(), err)
		}
	}
}

func TestKnownTypeThatTheServerLacksIsAChange(t *testing.T) {
	raw, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	old, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	d := newFakeRelay(t)
	addr := d.listen()
	dialer, _ := newDialer(t, addr)
	keep(t, filepath.Join(dialer.Home, ".ssh", "known_hosts"), knownhosts.Line([]string{addr}, old.PublicKey()))
	if err := dialOnce(t, dialer); exitOfError(err) != cli.ExitRefused {
		t.Error(err)
	}
	d.close()
	if n := d.auths.Load(); n != 0 {
		t.Errorf("%d tries to log in", n)
	}
}

// fakePrompter gives fixed answers in place of a user.
type fakePrompter struct {
	yes   bool
	pass  []string
	asked int
}

func (a *fakePrompter) Confirm(string) bool { a.asked++; return a.yes }

func (a *fakePrompter) Passphrase(string) ([]byte, error) {
	a.asked++
	pass := a.pass[0]
	a.pass = a.pass[1:]
	return []byte(pass), nil
}

func TestUnknownDistantHost(t *testing.T) {
	far := &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 22}
	key := newSigner(t).PublicKey()
	for name, c := range map[string]struct {
		ask  Prompter
		exit int
	}{
		"nobody to ask": {nil, cli.ExitRefused},
		"says no":       {&fakePrompter{}, cli.ExitRefused},
		"says yes":      {&fakePrompter{yes: true}, -1},
	} {
		h := &hostKeys{own: filepath.Join(t.TempDir(), "state", "known_hosts"), prompter: c.ask, say: (&sayRecorder{}).say}
		if err := h.load(); err != nil {
			t.Fatal(err)
		}
		err := h.check("relay.example.com:2222", far, key)
		if exitOfError(err) != c.exit || h.accepted != (c.exit == -1) {
			t.Errorf("%s: %v", name, err)
		}
		if c.exit != -1 && !strings.Contains(err.(*cli.Error).Hint, "--host-key "+ssh.FingerprintSHA256(key)) {
			t.Errorf("%s: hint %q", name, err.(*cli.Error).Hint)
		}
		if err := h.load(); err != nil {
			t.Fatal(err)
		}
		if known := len(h.wanted("relay.example.com:2222")) > 0; known != (c.exit == -1) {
			t.Errorf("%s: known afterwards: %v", name, known)
		}
	}
}

func TestRevokedHostKey(t *testing.T) {
	key := newSigner(t)
	d := newFakeRelay(t, key)
	addr := d.listen()
	dialer, _ := newDialer(t, addr)
	keep(t, filepath.Join(dialer.Home, ".ssh", "known_hosts"), "@revoked * "+string(ssh.MarshalAuthorizedKey(key.PublicKey())))
	if err := dialOnce(t, dialer); exitOfError(err) != cli.ExitRefused {
		t.Error(err)
	}
}

// TestKnownHostsWithoutALastLineEnd: a key is added on a line of its own even if the file does not end with a
// line feed.
func TestKnownHostsWithoutALastLineEnd(t *testing.T) {
	h := &hostKeys{own: filepath.Join(t.TempDir(), "known_hosts")}
	one, two := newSigner(t).PublicKey(), newSigner(t).PublicKey()
	if err := os.WriteFile(h.own, []byte(knownhosts.Line([]string{"a.test:1"}, one)), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.store("b.test:2", two); err != nil {
			t.Fatal(err)
		}
	}
	want := knownhosts.Line([]string{"a.test:1"}, one) + "\n" + knownhosts.Line([]string{"b.test:2"}, two) + "\n"
	if text, err := os.ReadFile(h.own); err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

// TestLinesOfKnownHostsThatAreNoneAreLeftOut: a line that the library cannot parse is skipped, and logins
// still work.
func TestLinesOfKnownHostsThatAreNoneAreLeftOut(t *testing.T) {
	key := newSigner(t)
	d := newFakeRelay(t, key)
	addr := d.listen()
	line := " " + string(ssh.MarshalAuthorizedKey(key.PublicKey()))
	bad := ""
	for _, pattern := range []string{"@unknown a.test", "|1|no|hash", "[a.test", "a.test,!", "[a.test]:22:22"} {
		bad += pattern + line
	}
	dialer, talk := newDialer(t, addr)
	file := filepath.Join(dialer.Home, ".ssh", "known_hosts")
	keep(t, file, bad+knownhosts.Line([]string{addr}, key.PublicKey())+"\n"+bad)
	if err := dialOnce(t, dialer); err != nil || talk.String() != "" {
		t.Errorf("%v, said %q", err, talk)
	}
	// The other lines still count, and the error names their file.
	changed, _ := newDialer(t, addr)
	file = filepath.Join(changed.Home, ".ssh", "known_hosts")
	keep(t, file, bad+knownhosts.Line([]string{addr}, newSigner(t).PublicKey())+"\n")
	err := dialOnce(t, changed)
	if exitOfError(err) != cli.ExitRefused || !strings.Contains(cli.HintOf(err, ""), file) {
		t.Errorf("%v, hint %q", err, cli.HintOf(err, ""))
	}
}

// TestHostKeysOfAFullDisk: a login to a known host writes no temporary file, because a client that reconnects
// for days must not depend on disk space.
func TestHostKeysOfAFullDisk(t *testing.T) {
	key := newSigner(t)
	addr := newFakeRelay(t, key).listen()
	dialer, _ := newDialer(t, addr)
	known := filepath.Join(dialer.Home, ".ssh", "known_hosts")
	keep(t, known, knownhosts.Line([]string{addr}, key.PublicKey()))
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TMP", os.Getenv("TMPDIR")) // TMP is the variable of Windows
	if err := dialOnce(t, dialer); err != nil {
		t.Fatal(err)
	}
	keep(t, known, knownhosts.Line([]string{addr}, newSigner(t).PublicKey()))
	err := dialOnce(t, dialer)
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitRefused || !strings.Contains(e.Hint, known) {
		t.Errorf("another key is known: %v", err)
	}
}

// TestCertificateAuthoritiesAreNoHostKeys: the key of a certificate authority is not taken for a host key. An
// unknown relay stays unknown, as with ssh, and is not reported as one with a changed key.
func TestCertificateAuthoritiesAreNoHostKeys(t *testing.T) {
	const addr = "relay.example.com:2222"
	far := &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 2222}
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	key, other, ecdsaKey := newSigner(t).PublicKey(), newSigner(t).PublicKey(), second.PublicKey()
	authority := func(pattern string, key ssh.PublicKey) string {
		return "@cert-authority " + pattern + " " + string(ssh.MarshalAuthorizedKey(key))
	}
	plain := func(key ssh.PublicKey) string { return knownhosts.Line([]string{addr}, key) + "\n" }
	const bad = "|1|no|hash ssh-ed25519 AAAA\n"
	for name, c := range map[string]struct {
		text, says string // "" = the key is accepted
		algorithms int    // number of algorithms that are offered
	}{
		"another type":              {authority("*", ecdsaKey), "is not known", 6},
		"the same type":             {authority("*", other), "is not known", 6},
		"the key itself":            {authority("*", key), "is not known", 6},
		"for this port":             {authority("[relay.example.com]:2222", other), "is not known", 6},
		"beside the known key":      {authority("*", ecdsaKey) + plain(key), "", 1},
		"behind the known key":      {plain(key) + authority("*", ecdsaKey), "", 1},
		"beside another known key":  {authority("*", key) + plain(other), "has changed", 1},
		"in a file with a bad line": {bad + authority("*", key) + bad, "is not known", 6},
		"after a byte order mark":   {"\ufeff" + authority("*", key), "is not known", 6},
		"byte order mark, then key": {"\ufeff" + plain(key) + authority("*", ecdsaKey), "", 1},
	} {
		dir := t.TempDir()
		h := &hostKeys{own: filepath.Join(dir, "own"), files: []string{filepath.Join(dir, "known_hosts")}, say: (&sayRecorder{}).say}
		if err := os.WriteFile(h.files[0], []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.load(); err != nil {
			t.Fatal(name, err)
		}
		if got := h.algorithms(addr); len(got) != c.algorithms {
			t.Errorf("%s: offers %v", name, got)
		}
		err := h.check(addr, far, key)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
