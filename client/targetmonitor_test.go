package client

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/andybalholm/brotli"
	"golang.org/x/crypto/ssh"
)

// through sends a request through a channel and returns all bytes that come back.
func through(t *testing.T, conn *fakeConn) string {
	t.Helper()
	ch, requests, err := conn.channel("stripe-dev")
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	defer ch.Close()
	_, _ = io.WriteString(ch, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	text, _ := io.ReadAll(ch)
	return string(text)
}

func targetEvent(t *testing.T, run *upRun, want string) TargetEvent {
	t.Helper()
	n := got(t, "news of the local server", run.local)
	if n.Kind != want {
		t.Errorf("told %+v, want %s", n, want)
	}
	return n
}

// TestLocalServerDownAndUpIsReportedOnce: each change is reported once, not each request.
func TestLocalServerDownAndUpIsReportedOnce(t *testing.T) {
	var events []string
	m := newTargetMonitor(func(e TargetEvent) { events = append(events, e.Kind) })
	f := Forward{Alias: "stripe-dev", Target: Target{URL: "http://127.0.0.1:3000"}}
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, err := range []error{nil, refused, refused, nil, nil, &net.DNSError{}, nil} {
		m.dialed(f, err)
	}
	if want := []string{LocalDown, LocalUp, LocalDown, LocalUp}; !slices.Equal(events, want) {
		t.Errorf("reported %v, want %v", events, want)
	}
}

func TestMistakesOfTheSetUpAreHinted(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	// Development servers compress the response as the caller accepts it, and send it in chunks.
	coded := func(coding string, to func(io.Writer) io.WriteCloser) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", coding)
			w.WriteHeader(403)
			_ = http.NewResponseController(w).Flush()
			z := to(w)
			_, _ = io.WriteString(z, `Blocked request. This host ("a.example") is not allowed.`)
			_ = z.Close()
		}
	}
	for name, c := range map[string]struct {
		h          http.HandlerFunc
		hostHeader string
		kind       string
	}{
		"vite":          {answer(403, `Blocked request. This host ("a.example") is not allowed.`), "", LocalHost},
		"django":        {answer(400, "<html><head><title>DisallowedHost\n at /</title>"), "preserve", LocalHost},
		"rails":         {answer(403, strings.Repeat(" ", 5000)+"<h1>Blocked hosts: a.example</h1>"), "", LocalHost},
		"webpack":       {answer(403, "Invalid Host header"), "", LocalHost},
		"old webpack":   {answer(200, "Invalid Host header"), "", LocalHost},
		"vite, gzip":    {coded("gzip", func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }), "", LocalHost},
		"vite, brotli":  {coded("br", func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) }), "", LocalHost},
		"rails, origin": {answer(422, "HTTP Origin header (https://a.example) didn&#39;t match request.base_url (http://a.example)"), "", ""},
		"other 403":     {answer(403, "no"), "", ""},
		"told about it": {answer(200, "what DisallowedHost means"), "", ""},
		"rewritten":     {answer(403, "Invalid Host header"), "rewrite", ""},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(c.h)
			defer srv.Close()
			target, err := ParseTarget(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			target.HostHeader = c.hostHeader
			conn, run := online(t, target)
			for range 3 {
				if !strings.HasPrefix(through(t, conn), "HTTP/1.1 ") {
					t.Error("no answer")
				}
			}
			if c.kind != "" {
				if n := targetEvent(t, run, c.kind); !strings.Contains(n.Hint, "--host-header rewrite") {
					t.Errorf("hint %q", n.Hint)
				}
			}
			if len(run.local) > 0 {
				t.Errorf("told %+v", <-run.local)
			}
		})
	}
}

func TestPlainAndTLSMixedUpIsHinted(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	alert, _ := newListener(t) // answers like a TLS 1.2 server, with alert 70
	go func() {
		for {
			c, err := alert.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_, _ = c.Write([]byte{0x15, 3, 3, 0, 2, 2, 70})
			c.Close()
		}
	}()
	for url, kind := range map[string]string{
		strings.Replace(secure.URL, "https", "http", 1): LocalSpeaksTLS,
		"http://" + alert.Addr().String():               LocalSpeaksTLS,
		strings.Replace(plain.URL, "http", "https", 1):  LocalSpeaksPlain,
	} {
		target, err := ParseTarget(url)
		if err != nil {
			t.Fatal(err)
		}
		conn, run := online(t, target)
		through(t, conn)
		through(t, conn)
		other := map[string]string{LocalSpeaksTLS: "--target https://", LocalSpeaksPlain: "--target http://"}[kind]
		if n := targetEvent(t, run, kind); !strings.Contains(n.Hint, other) {
			t.Errorf("hint %q", n.Hint)
		}
		if len(run.local) > 0 {
			t.Errorf("and %+v", <-run.local)
		}
		_ = run.stop(t)
	}
}
