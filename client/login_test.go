package client

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay/cli"
)

// enrolling returns a fake relay that shows link and code in its banner, and then accepts the login or
// refuses it with verdict. The returned Go channel gets the user name of each login.
func enrolling(t *testing.T, verdict error) (*fakeRelay, chan string) {
	d := newFakeRelay(t)
	users := make(chan string, 4)
	d.config.PublicKeyCallback = func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
		return &ssh.Permissions{}, nil
	}
	var speak ssh.ServerPreAuthConn
	d.config.PreAuthConnCallback = func(c ssh.ServerPreAuthConn) { speak = c }
	d.config.VerifiedPublicKeyCallback = func(meta ssh.ConnMetadata, _ ssh.PublicKey, p *ssh.Permissions, _ string) (*ssh.Permissions, error) {
		users <- meta.User()
		_ = speak.SendAuthBanner("relay: key SHA256:x\r\nrelay: is not registered yet\r\nhttps://relay.test/link/abc\r\n")
		_ = speak.SendAuthBanner("Code: ABCD-2345\r\nrelay: waiting\r\n")
		if verdict != nil {
			_ = speak.SendAuthBanner("relay: nobody approved the key in time\r\n")
		}
		return p, verdict
	}
	return d, users
}

func TestEnrolShowsLinkAndCode(t *testing.T) {
	d, users := enrolling(t, nil)
	dialer, _ := newDialer(t, d.listen())
	var shown []string
	err := dialer.Enrol(context.Background(), func(link, code string) { shown = append(shown, link+" "+code) })
	if err != nil || len(shown) != 1 || shown[0] != "https://relay.test/link/abc ABCD-2345" {
		t.Errorf("%q, %v", shown, err)
	}
	if user := got(t, "user", users); user != "link" {
		t.Errorf("logged in as %s", user)
	}
}

// closedAlready is a connection whose Close returns net.ErrClosed, as if it had been closed before.
type closedAlready struct{ net.Conn }

func (c closedAlready) Close() error {
	_ = c.Conn.Close()
	return net.ErrClosed
}

// TestEnrolOfAConnectionThatEnds: an approved key is a success even if the relay closes the connection before
// the client does.
func TestEnrolOfAConnectionThatEnds(t *testing.T) {
	d, _ := enrolling(t, nil)
	dialer, _ := newDialer(t, d.listen())
	dialer.connect = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return closedAlready{c}, err
	}
	if err := dialer.Enrol(t.Context(), func(string, string) {}); err != nil {
		t.Error(err)
	}
}

func TestEnrolThatNobodyApproves(t *testing.T) {
	d, _ := enrolling(t, errors.New("no"))
	dialer, _ := newDialer(t, d.listen())
	err := dialer.Enrol(context.Background(), func(string, string) {})
	if exitOfError(err) != cli.ExitRefused || !strings.Contains(err.Error(), "the key was not approved: nobody approved the key in time") {
		t.Error(err)
	}
}

func TestEnrolEndsWithItsContext(t *testing.T) {
	d, _ := enrolling(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	free := make(chan struct{})
	inner := d.config.VerifiedPublicKeyCallback
	d.config.VerifiedPublicKeyCallback = func(m ssh.ConnMetadata, k ssh.PublicKey, p *ssh.Permissions, a string) (*ssh.Permissions, error) {
		_, _ = inner(m, k, p, a)
		<-free
		return p, nil
	}
	dialer, _ := newDialer(t, d.listen())
	err := dialer.Enrol(ctx, func(string, string) { cancel() })
	close(free)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestEnrolDoesNotTrustAnotherHost(t *testing.T) {
	d, users := enrolling(t, nil)
	dialer, _ := newDialer(t, d.listen())
	dialer.HostKey = ssh.FingerprintSHA256(newSigner(t).PublicKey())
	err := dialer.Enrol(context.Background(), func(string, string) { t.Error("shown") })
	if exitOfError(err) != cli.ExitRefused || !strings.Contains(err.Error(), "not the pinned") || len(users) != 0 {
		t.Error(err)
	}
}

func TestMakeKeyForWhoHasNone(t *testing.T) {
	dialer := &Dialer{Server: "127.0.0.1:1", Home: t.TempDir(), Say: func(string) {}}
	if !dialer.NoKey() {
		t.Error("there is a key")
	}
	file := filepath.Join(t.TempDir(), "new", "id_ed25519")
	key, err := MakeKey(file, "relay on box")
	if err != nil {
		t.Fatal(err)
	}
	again, err := MakeKey(file, "other")
	if err != nil || ssh.FingerprintSHA256(again) != ssh.FingerprintSHA256(key) {
		t.Errorf("made anew: %v", err)
	}
	for _, name := range []string{file, file + ".pub"} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(info, err)
		}
	}
	dialer = &Dialer{Server: "127.0.0.1:1", Identity: file, Home: t.TempDir(), Say: func(string) {}}
	first, err := dialer.FirstKey()
	if err != nil || dialer.NoKey() || ssh.FingerprintSHA256(first) != ssh.FingerprintSHA256(key) {
		t.Error(first, err)
	}
	if err := os.WriteFile(file, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeKey(file, ""); exitOfError(err) != cli.ExitFailure {
		t.Error("a file that is no key was taken or written over", err)
	}
}

func TestReadToken(t *testing.T) {
	for text, want := range map[string]string{"rly_x": "rly_x", "rly_x\n": "rly_x", "  rly_x \r\nmore\n": "rly_x"} {
		if token, err := ReadToken(strings.NewReader(text)); err != nil || token != want {
			t.Errorf("%q: %q, %v", text, token, err)
		}
	}
	for _, text := range []string{"", "\n", "a b", "rly_\x1b[2J", "rly_é"} {
		if token, err := ReadToken(strings.NewReader(text)); exitOfError(err) != cli.ExitUsage {
			t.Errorf("%q: %q, %v", text, token, err)
		}
	}
}
