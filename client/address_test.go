package client

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestSplitServer(t *testing.T) {
	for in, want := range map[string][3]string{
		"relay.example.com":         {"", "relay.example.com", ""},
		"relay.example.com:2222":    {"", "relay.example.com", "2222"},
		"bob@relay.example.com:22":  {"bob", "relay.example.com", "22"},
		"[::1]:2222":                {"", "::1", "2222"},
		"::1":                       {"", "::1", ""},
		"a:b:c":                     {},
		"":                          {},
		":22":                       {},
		"x:99999":                   {},
		"x:0":                       {},
		"a b":                       {},
		"https://relay.example.com": {},
	} {
		user, host, port, err := SplitServer(in)
		if got := [3]string{user, host, port}; got != want || (err != nil) != (want == [3]string{}) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func TestSSHConfigIsUsed(t *testing.T) {
	home := t.TempDir()
	keep(t, filepath.Join(home, ".ssh", "config"), `Host hook
  HostName %h.example.com
  Port 2022
  User bob
  IdentityFile ~/keys/%h
  ProxyJump bastion
`)
	talk := &sayRecorder{}
	a, err := resolve("hook", home, talk.say)
	if err != nil {
		t.Fatal(err)
	}
	if a.String() != "hook.example.com:2022" || a.user != "bob" {
		t.Errorf("%v as %s", a, a.user)
	}
	if want := filepath.Join(home, "keys", "hook.example.com"); len(a.identities) != 1 || a.identities[0] != want {
		t.Errorf("identities %q, want %q", a.identities, want)
	}
	if !strings.Contains(talk.String(), "ProxyJump") {
		t.Errorf("said %q", talk)
	}
	if a, _ = resolve("alice@hook:22", home, talk.say); a.port != "22" || a.user != "alice" {
		t.Errorf("what is typed does not win: %v as %s", a, a.user)
	}
	if a, _ = resolve("other", home, talk.say); a.String() != "other:2222" || a.user != "relay" {
		t.Errorf("%v as %s", a, a.user)
	}
}

func TestSSHConfigThatCannotBeReadOnlyWarns(t *testing.T) {
	home := t.TempDir()
	keep(t, filepath.Join(home, ".ssh", "config"), "Match exec \"true\"\n  Port 1\n")
	talk := &sayRecorder{}
	a, err := resolve("hook", home, talk.say)
	if err != nil || a.String() != "hook:2222" || !strings.Contains(talk.String(), "warning") {
		t.Errorf("%v, %v, said %q", a, err, talk)
	}
}

func TestSameServer(t *testing.T) {
	for pair, want := range map[[2]string]bool{
		{"localhost:2222", "127.0.0.1:2222"}:        true,
		{"[::1]:2222", "LOCALHOST:2222"}:            true,
		{"relay.test:22", "Relay.Test:22"}:          true,
		{"localhost:2222", "127.0.0.1:2223"}:        false,
		{"localhost:2222", "relay.test:2222"}:       false,
		{"localhost.relay.test:22", "127.0.0.1:22"}: false,
	} {
		if SameServer(pair[0], pair[1]) != want {
			t.Errorf("%v: %t", pair, !want)
		}
	}
}
