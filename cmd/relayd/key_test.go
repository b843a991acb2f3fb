package main

import (
	"strings"
	"testing"
)

// A text of --initial-admin-keys that is no plain key says so, also one that is longer than
// the name of a file may be.
func TestInitialAdminKeysThatAreNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"restrict ssh-rsa " + strings.Repeat("A", 400) + " name": "--initial-admin-keys:1: expected a public key",
		"ssh-ed25519 x": "or the path of a file that holds one",
		"no-such-file":  "there is no file no-such-file",
	} {
		if _, err := initialAdminKeys(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
