package main

import (
	"net/url"
	"slices"
	"testing"

	"relay"
)

// TestDoctorOfForwardedSSHPort: doctor checks the port of the last server's listener, and not the port that
// users dial: a router may forward it.
func TestDoctorOfForwardedSSHPort(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, map[string]string{"ssh-public-addr": "relay.example.com:1"})
	cfg, list, err := load(sources{getenv: env(), flags: map[string]string{"data-dir": h.flags["data-dir"]}})
	if err != nil {
		t.Fatal(err)
	}
	want := passed("ssh-addr", "a relay answers at %s", h.app.cfg.SSHAddr)
	if got := (&program{getenv: env()}).runChecks(t.Context(), cfg, list); !slices.Contains(got, want) {
		t.Errorf("%v is not among %v", want, got)
	}
}

func TestSameSite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ base, domain, want string }{
		{"https://relay.example.com", "relay.example.com", "example.com"},
		{"https://relay.example.com", "hooks.example.com", "example.com"},
		{"https://example.com", "hooks.example.com.", "example.com"},
		{"https://RELAY.example.co.uk", "hooks.Example.co.uk", "example.co.uk"},
		{"https://relay.internal.lan", "hooks.internal.lan", "internal.lan"},
		{"https://relay.example.com", "example-hooks.net", ""},
		{"https://example.co.uk", "other.co.uk", ""},
		{"https://relay.example.com", "github.io", ""}, // github.io is a public suffix
		{"http://localhost:8080", "localhost", ""},
		{"http://192.0.2.1", "hooks.example.com", ""},
	} {
		base, err := url.Parse(c.base)
		if err != nil {
			t.Fatal(err)
		}
		if got := sameSite(relay.Site{Base: *base, AliasDomain: c.domain}); got != c.want {
			t.Errorf("sameSite(%s, %s) = %q, want %q", c.base, c.domain, got, c.want)
		}
	}
}
