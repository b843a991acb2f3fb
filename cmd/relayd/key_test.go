package main

import (
	"strings"
	"testing"
)

// TestInitialAdminKeysThatAreNone: a value of --initial-admin-keys that is not a plain key gets a clear
// error, even if the value is too long for a file name.
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

// TestKeyFilesWithAByteOrderMark: key files may have the byte order mark of Windows editors, or the UTF-16 of
// PowerShell. The text may be joined from several files.
func TestKeyFilesWithAByteOrderMark(t *testing.T) {
	t.Parallel()
	const one = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGrfK4cH0Yk2zYkVvWqk0nH0Q4cP4Lr4Qy8x9mE7b8tD alice@laptop"
	const two = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGrfK4cH0Yk2zYkVvWqk0nH0Q4cP4Lr4Qy8x9mE7b8tE bob"
	wide := "\xff\xfe"
	for _, r := range one + "\r\n" {
		wide += string(r) + "\x00"
	}
	for text, want := range map[string]int{"\ufeff" + one: 1, "\ufeff" + one + "\r\n\ufeff" + two + "\r\n": 2, "\ufeff# nobody\n" + one: 1, wide: 1} {
		keys, err := readKeyFile(write(t, "keys", text))
		if err != nil || len(keys) != want || keys[0].name != "alice@laptop" {
			t.Errorf("%q: %+v, %v", text, keys, err)
		}
	}
	c, _, err := load(sources{getenv: env("RELAY_DATABASE_URL_FILE", write(t, "url", "\ufeffpostgres://relay@db/relay\r\n"))})
	if err != nil || c.DatabaseURL != "postgres://relay@db/relay" {
		t.Errorf("%q, %v", c.DatabaseURL, err)
	}
}
