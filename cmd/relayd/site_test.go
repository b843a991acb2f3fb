package main

import (
	"net/url"
	"testing"

	"relay"
)

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
		{"https://relay.example.com", "github.io", ""}, // its names are strangers to each other
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
