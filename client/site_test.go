package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"relay/cli"
	"relay/link"
)

func TestBaseURLsAsTyped(t *testing.T) {
	for typed, want := range map[string]string{
		"relay.example.com":          "https://relay.example.com",
		"relay.example.com:8443":     "https://relay.example.com:8443",
		"https://relay.example.com/": "https://relay.example.com",
		"localhost:8080":             "http://localhost:8080",
		"127.0.0.1:8080":             "http://127.0.0.1:8080",
		"http://[::1]:8080":          "http://[::1]:8080",
		"http://relay.example.com":   "http://relay.example.com",
	} {
		if got, err := CleanBase(typed); err != nil || got != want {
			t.Errorf("%s: %s, %v", typed, got, err)
		}
	}
	for _, typed := range []string{"", "ftp://x", "https://", "https://a/b", "https://u:p@a", "a b", "https://a/%zz", "\x1b"} {
		if got, err := CleanBase(typed); exitOfError(err) != cli.ExitUsage {
			t.Errorf("%q: %s, %v", typed, got, err)
		}
	}
	for base, want := range map[string]bool{
		"https://relay.example.com": true, "http://localhost:1": true, "http://127.0.0.1": true, "http://[::1]:1": true,
		"http://a.localhost": true, "http://relay.example.com": false, "http://127.0.0.1.example.com": false, "http://localhost.example.com": false,
	} {
		if Private(base) != want {
			t.Errorf("%s: private %t", base, !want)
		}
	}
}

func discoverFrom(t *testing.T, status int, body string) (*Site, error) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/ssh" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	return Discover(context.Background(), server.URL, "test")
}

func TestDiscoverPinsTheHostKey(t *testing.T) {
	signer := newSigner(t)
	line := strings.Fields(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	d := newFakeRelay(t, signer)
	addr := d.listen()
	site, err := discoverFrom(t, 200, fmt.Sprintf(`{"addr":%q,"hostKeys":[{"type":%q,"key":%q,"fingerprint":"x"}],"baseUrl":"x"}`, addr, line[0], line[1]))
	if err != nil || site.SSHAddr != addr || len(site.HostKeys) != 1 {
		t.Fatal(site, err)
	}
	dialer, _ := newDialer(t, addr)
	own := filepath.Join(dialer.StateDir, "known_hosts")
	old := knownhosts.Line([]string{addr}, newSigner(t).PublicKey()) + "\n"
	other := knownhosts.Line([]string{"other.test:22"}, newSigner(t).PublicKey()) + "\n"
	if err := writePrivate(own, []byte(old+other)); err != nil {
		t.Fatal(err)
	}
	if err := dialer.Expect(site.HostKeys, false); exitOfError(err) != cli.ExitRefused {
		t.Errorf("another site has replaced a key that was known: %v", err)
	}
	if err := dialer.Expect(site.HostKeys, true); err != nil {
		t.Fatal(err)
	}
	conn, err := dialer.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close(link.Unneeded)
	if text, err := os.ReadFile(own); err != nil || string(text) != old+other {
		t.Errorf("stored before the relay has said which base URL it has: %s, %v", text, err)
	}
	if err := dialer.KeepExpected(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(own)
	if err != nil || strings.Contains(string(text), old) || !strings.Contains(string(text), other) {
		t.Errorf("%s, %v", text, err)
	}
	later, _ := newDialer(t, addr)
	later.Home, later.StateDir = dialer.Home, dialer.StateDir
	if conn, err = later.Dial(context.Background()); err != nil {
		t.Fatal(err)
	}
	conn.Close(link.Unneeded)
}

func TestDiscoverIsNotLedAstray(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		exit   int // -1 = a site without an SSH server
	}{
		"older relay":    {404, `{"code":"not-found","detail":"x"}`, -1},
		"no relay":       {200, "<html>", cli.ExitFailure},
		"redirect":       {302, "", cli.ExitFailure},
		"no address":     {200, `{"addr":"","hostKeys":[]}`, cli.ExitFailure},
		"a user in it":   {200, `{"addr":"root@relay.test:22","hostKeys":[]}`, cli.ExitFailure},
		"an option":      {200, `{"addr":"-oProxyCommand=x y","hostKeys":[]}`, cli.ExitFailure},
		"no key":         {200, `{"addr":"relay.test:22","hostKeys":[{"key":"AAAA"}]}`, cli.ExitFailure},
		"line ends":      {200, `{"addr":"relay.test\n:22","hostKeys":[]}`, cli.ExitFailure},
		"gateway's page": {502, "bad", cli.ExitFailure},
	} {
		site, err := discoverFrom(t, c.status, c.body)
		if exitOfError(err) != c.exit || err == nil && site.SSHAddr != "" {
			t.Errorf("%s: %+v, %v", name, site, err)
		}
	}
}
