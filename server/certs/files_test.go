package certs

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

func TestCertFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Files(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), nil); err == nil || !strings.Contains(err.Error(), "cert.pem") {
		t.Errorf("missing files: %v", err)
	}
	cert, key := relaytest.WriteCertificate(t, dir, "first")
	get, err := Files(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	common := func() string {
		c, err := get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.Subject.CommonName
	}
	if got := common(); got != "first" {
		t.Errorf("got %q", got)
	}
	if err := os.WriteFile(cert, []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := common(); got != "first" {
		t.Errorf("while renewing: got %q", got)
	}
	relaytest.WriteCertificate(t, dir, "second")
	relaytest.Until(t, 10*time.Second, "the new certificate", func() bool { return common() == "second" })
}

// TestCertFilesAreTriedAgain: while a new pair cannot be read, the old certificate stays in use. Once the
// file is corrected, its certificate is used, although size and time of the file are the same.
func TestCertFilesAreTriedAgain(t *testing.T) {
	t.Parallel()
	dir, lines := t.TempDir(), make(chan string, 100)
	cert, key := relaytest.WriteCertificate(t, dir, "first")
	log := slog.New(slog.NewTextHandler(lineWriter(lines), nil))
	get, err := Files(cert, key, log)
	if err != nil {
		t.Fatal(err)
	}
	common := func() string {
		c, err := get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.Subject.CommonName
	}
	next := t.TempDir()
	newCert, newKey := relaytest.WriteCertificate(t, next, "second")
	good, err := os.ReadFile(newCert)
	if err != nil {
		t.Fatal(err)
	}
	// With this time, the new files differ from those of the first pair, which may have been written within
	// the same tick of the clock.
	later := time.Now().Add(time.Minute)
	// replace replaces the certificate file by one with this text. The modification time of the new file is the
	// variable later.
	replace := func(text []byte) {
		file := filepath.Join(next, "file")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, later, later); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file, cert); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(newKey, key); err != nil {
		t.Fatal(err)
	}
	replace(bytes.Repeat([]byte("x"), len(good)))
	relaytest.Until(t, 10*time.Second, "the new certificate", func() bool {
		if got := common(); got != "first" {
			t.Fatalf("got %q", got)
		}
		return len(lines) > 0
	})
	if line := <-lines; !strings.Contains(line, "cannot be used") {
		t.Error(line)
	}
	replace(good)
	relaytest.Until(t, 10*time.Second, "the new certificate", func() bool { return common() == "second" })
	for range len(lines) {
		if line := <-lines; !strings.Contains(line, "read again") && !strings.Contains(line, "cannot be used") {
			t.Error(line)
		}
	}
}

// lineWriter passes each line of a log to the test.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) { w <- string(p); return len(p), nil }
