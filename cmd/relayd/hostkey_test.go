package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"relay/sshgate"
	"relay/store"
	"relay/store/pgtest"
)

// TestHostKeyOfAllNodes: the host key that the first node had before it used Postgres becomes the key of all
// nodes. A node with another key logs that and uses the shared key.
func TestHostKeyOfAllNodes(t *testing.T) {
	t.Parallel()
	first, second, third := t.TempDir(), t.TempDir(), t.TempDir()
	known, err := sshgate.LoadHostKey(first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sshgate.LoadHostKey(third); err != nil {
		t.Fatal(err)
	}
	url := pgtest.URL(t)
	for i, dir := range []string{first, second, third} {
		s, err := store.Open(t.Context(), store.Options{URL: url, DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		keys, err := loadHostKeys(t.Context(), Config{DataDir: dir, DatabaseURL: url}, s, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || len(keys) != 1 || !bytes.Equal(keys[0].PublicKey().Marshal(), known.PublicKey().Marshal()) {
			t.Errorf("node %d: %v, %v", i, keys, err)
		}
		if warned := strings.Contains(log.String(), "is not used"); warned != (dir == third) {
			t.Errorf("node %d logged %q", i, log.String())
		}
	}
}

// TestHostKeyFiles: keys of --ssh-host-key are used instead of the key in the data dir, even if a file name
// contains a space. A file without a key is an error that names the file.
func TestHostKeyFiles(t *testing.T) {
	t.Parallel()
	old, next := t.TempDir(), filepath.Join(t.TempDir(), "next key")
	if err := os.Mkdir(next, 0o700); err != nil {
		t.Fatal(err)
	}
	var list []string
	var want []ssh.Signer
	for _, dir := range []string{old, next} {
		key, err := sshgate.LoadHostKey(dir)
		if err != nil {
			t.Fatal(err)
		}
		list, want = append(list, filepath.Join(dir, sshgate.HostKeyFile)), append(want, key)
	}
	cfg := Config{DataDir: t.TempDir(), SSHHostKey: strings.Join(list, ", ")}
	keys, err := loadHostKeys(t.Context(), cfg, nil, nil)
	if err != nil || len(keys) != 2 {
		t.Fatalf("%v, %v", keys, err)
	}
	for i := range keys {
		if ssh.FingerprintSHA256(keys[i].PublicKey()) != ssh.FingerprintSHA256(want[i].PublicKey()) {
			t.Errorf("key %d is another one", i)
		}
	}
	if err := os.WriteFile(list[1], []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadHostKeys(t.Context(), cfg, nil, nil); err == nil || !strings.Contains(err.Error(), list[1]) || !strings.Contains(err.Error(), "--ssh-host-key") {
		t.Errorf("a file without a key: %v", err)
	}
}
