package server

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"relay"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	tests := []struct {
		to    route
		hosts []string
	}{
		{route{kind: hostBase}, []string{"relay.test", "RELAY.Test", "relay.test.", "relay.test:8080", "relay.test.:8080", "relay.test:"}},
		{route{hostAlias, "base"}, []string{"base.hooks.test"}},
		{route{hostAlias, "shop"}, []string{
			"shop.hooks.test", "SHOP.Hooks.TEST", "shop.hooks.test.", "shop.hooks.test:80",
			"shop.hooks.test.:65535", "shop.hooks.test:",
		}},
		{route{hostAlias, "a-b"}, []string{"a-b.hooks.test"}},
		{route{hostAlias, "-"}, []string{"-.hooks.test"}},
		{route{hostAlias, "1"}, []string{"1.hooks.test"}},
		{route{hostAlias, "a_b"}, []string{"a_b.hooks.test"}},
		{route{hostAlias, "xn--caf-dma"}, []string{"xn--caf-dma.hooks.test"}},
		{route{hostAlias, "www"}, []string{"www.hooks.test"}},
		{route{hostAlias, long}, []string{long + ".hooks.test"}},
		{route{hostAlias, long + "a"}, []string{long + "a.hooks.test"}},
		{route{kind: hostNested}, []string{"a.shop.hooks.test", "a.b.c.hooks.test", ".hooks.test", "shop..hooks.test", ".shop.hooks.test"}},
		{route{kind: hostUnknown}, []string{
			"hooks.test", "hooks.test.", "shophooks.test", "shop.hooks.test.evil", "shop.hooks.test..",
			"relay.test..", "x.relay.test", "test", "example.com", "localhost", "127.0.0.1",
			"127.0.0.1:8080", "[::1]", "[::1]:8080", "", ".",
		}},
		{route{kind: hostInvalid}, []string{
			":80", "%73hop.hooks.test", "[::1", "[]", "[127.0.0.1]", "[fe80::1%25eth0]", "[::1]x", "::1", "shop.hooks.test:8o",
			"shop.hooks.test:123456", "shop.hooks.test:80:80", "shop.hooks.test:-1", "user@shop.hooks.test",
			"shop.hooks.test/x", "shop.hooks.test?x", "shop.hooks.test#x", "http://shop.hooks.test",
			"shop hooks.test", "shop.hooks.test\x00", "caf\xc3\xa9.hooks.test", "shop\\hooks.test",
			"\"shop\".hooks.test",
		}},
	}
	h := newHosts(relay.Site{Base: url.URL{Host: "Relay.test:8080"}, AliasDomain: "Hooks.test."})
	n := 0
	for _, tt := range tests {
		for _, host := range tt.hosts {
			if n++; h.find(host) != tt.to {
				t.Errorf("find(%q) = %v, want %v", host, h.find(host), tt.to)
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d hosts", n)
	}
}

func TestLoopbackHosts(t *testing.T) {
	t.Parallel()
	h := newHosts(relay.Site{Base: url.URL{Host: "localhost:8080"}, AliasDomain: "localhost", Loopback: true})
	for host, want := range map[string]route{
		"localhost:8080":      {kind: hostBase},
		"127.0.0.1:8080":      {kind: hostBase},
		"[::1]:8080":          {kind: hostBase},
		"[0:0:0:0:0:0:0:1]":   {kind: hostBase},
		"LOCALHOST.":          {kind: hostBase},
		"shop.localhost:8080": {hostAlias, "shop"},
		"a.b.localhost":       {kind: hostNested},
		"127.0.0.2":           {},
		"[::2]":               {},
	} {
		if got := h.find(host); got != want {
			t.Errorf("find(%q) = %v, want %v", host, got, want)
		}
	}
}

func TestBaseHostBelowAliasDomain(t *testing.T) {
	t.Parallel()
	h := newHosts(relay.Site{Base: url.URL{Host: "app.hooks.test"}, AliasDomain: "hooks.test"})
	for host, want := range map[string]route{
		"app.hooks.test":  {kind: hostBase},
		"App.hooks.test.": {kind: hostBase},
		"apps.hooks.test": {hostAlias, "apps"},
	} {
		if got := h.find(host); got != want {
			t.Errorf("find(%q) = %v, want %v", host, got, want)
		}
	}
}

func FuzzSplitHost(f *testing.F) {
	for _, s := range []string{"a.hooks.test:80", "[::1]:8080", "A.", "", "x:", "::1", "u@h", "[::ffff:1.2.3.4]"} {
		f.Add(s)
	}
	h := newHosts(relay.Site{Base: url.URL{Host: "relay.test"}, AliasDomain: "hooks.test", Loopback: true})
	f.Fuzz(func(t *testing.T, s string) {
		name, ok := splitHost(s)
		if !ok {
			return
		}
		if name != strings.ToLower(name) || strings.ContainsAny(name, "/@ []\x00") {
			t.Errorf("splitHost(%q) = %q", s, name)
		}
		if !strings.Contains(name, ":") && !strings.HasSuffix(name, ".") && name != "" {
			again, ok := splitHost(net.JoinHostPort(name, "1"))
			if !ok || again != name {
				t.Errorf("splitHost of its own %q = %q, %v", name, again, ok)
			}
		}
		to := h.find(s)
		if (to.kind == hostAlias) != (to.label != "") || strings.Contains(to.label, ".") {
			t.Errorf("find(%q) = %v", s, to)
		}
		if relay.ValidLabel(to.label) && !strings.HasPrefix(strings.ToLower(s), to.label+".hooks.test") {
			t.Errorf("find(%q) = %v", s, to)
		}
	})
}
