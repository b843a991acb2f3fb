package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// TestAccessLog: an answered and a queued request have a line each, and no line contains a query, a header
// value or a body.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	h := newTestServer(t, map[string]string{"access-log": file})
	l := newLocal(t, "HTTP/1.1 201 Created\r\nContent-Length: 4\r\nX-Reply: secret-reply\r\n\r\nbody")
	tn := h.tunnel("logged", l.addr)
	const request = "POST /hook/1?token=secret-query HTTP/1.1\r\nHost: logged.localhost\r\nAuthorization: secret-header\r\nContent-Length: 11\r\nConnection: close\r\n\r\nsecret-body"
	h.send(request)
	tn.close()
	if !relaytest.Poll(5*time.Second, func() bool { return strings.HasPrefix(h.trySend(request), "HTTP/1.1 202") }) {
		t.Fatal("no request was queued after the tunnel closed")
	}
	if err := h.app.stopOnce(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("secret")) {
		t.Errorf("the access log holds a secret: %s", text)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	for i, want := range map[int]int{0: 201, len(lines) - 1: 202} {
		var line accessLine
		if err := json.Unmarshal(lines[i], &line); err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
		if line.Status != want || line.Alias != "logged" || line.Method != "POST" || line.Path != "/hook/1" || line.Event == "" || line.From != "127.0.0.1" {
			t.Errorf("line %d is %+v, want status %d", i, line, want)
		}
	}
}

// TestAccessLogRotation: after the file was renamed and reopen was called, lines go to a new file with the
// configured name.
func TestAccessLogRotation(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	f := &logFile{path: file}
	if err := f.openAtStart(); err != nil {
		t.Fatal(err)
	}
	add := func(line string) {
		t.Helper()
		if _, err := f.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	add("one\n")
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if err := f.reopen(); err != nil {
		t.Fatal(err)
	}
	add("two\n")
	for name, want := range map[string]string{file + ".1": "one\n", file: "two\n"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
		}
	}
}
