package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/relaytest"
)

// TestAccessLog: each request to an alias has one line, and no line holds what is usually
// secret.
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

// TestAccessLogIsFull: a log that cannot be written makes no request wait.
func TestAccessLogIsFull(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe() // nobody reads until the end
	l, err := newAccessLog("stdout", w, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	in := &relay.Inbound{Alias: &relay.Alias{Name: "demo"}, Head: []byte("GET / HTTP/1.1\r\n\r\n")}
	const sent = 3 * accessLines
	for range sent {
		l.add(in, time.Now(), relay.Outcome{})
	}
	go func() { l.close(); _ = w.Close() }()
	written, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(bytes.Count(written, []byte("\n"))) + l.dropped.Load(); got != sent || l.dropped.Load() == 0 {
		t.Errorf("%d lines were written or counted as dropped, %d of them dropped; want %d in all", got, l.dropped.Load(), sent)
	}
}

// TestAccessLogThatTakesNothing: a stop waited for ever for whoever reads the access log, so that
// tunnels were not told and the store was not closed.
func TestAccessLogThatTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // nobody reads
		l, err := newAccessLog("stdout", w, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		in := &relay.Inbound{Alias: &relay.Alias{Name: "demo"}, Head: []byte("GET / HTTP/1.1\r\n\r\n")}
		l.add(in, time.Now(), relay.Outcome{})
		closed := make(chan struct{})
		go func() {
			l.close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Error("the stop still waits for the access log after a minute")
		}
		_ = r.Close()
		<-l.ended
		<-closed
	})
}

// TestAccessLogRotation: after the signal, lines go to a new file.
func TestAccessLogRotation(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	l := &accessLog{path: file, log: slog.New(slog.DiscardHandler), lines: make(chan []byte), ended: make(chan struct{})}
	out, err := l.open()
	if err != nil {
		t.Fatal(err)
	}
	reopen := make(chan os.Signal)
	go l.write(out, reopen)
	l.lines <- []byte("one\n")
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	reopen <- os.Interrupt
	l.lines <- []byte("two\n")
	close(l.lines)
	<-l.ended
	for name, want := range map[string]string{file + ".1": "one\n", file: "two\n"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
		}
	}
}

func TestAccessLogPath(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]string{
		"GET /a/b?c=d HTTP/1.1\r\n":               "/a/b",
		"GET http://u:p@h.test/a?q HTTP/1.1\r\n":  "/a",
		"GET http://h.test HTTP/1.1\r\n":          "/",
		"GET /?to=https://x.test/y HTTP/1.1\r\n":  "/",
		"GET /" + strings.Repeat("a", 999) + "\n": "/" + strings.Repeat("a", maxAccessPath-1),
	} {
		if method, path := methodAndPath([]byte(head)); method != "GET" || path != want {
			t.Errorf("%q: %q %q, want %q", head, method, path, want)
		}
	}
}
