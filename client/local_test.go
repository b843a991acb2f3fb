package client

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// through sends a request down a channel and gives all that comes back.
func through(t *testing.T, conn *doubleConn) string {
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

func newsOf(t *testing.T, run *upRun, want string) LocalNews {
	t.Helper()
	n := got(t, "news of the local server", run.local)
	if n.Kind != want {
		t.Errorf("told %+v, want %s", n, want)
	}
	return n
}

func TestListenersAreSeenWithoutAConnection(t *testing.T) {
	ln, target := local(t)
	if listening, known := listens(target.addrs); known && !listening {
		t.Error("a listener is not seen")
	}
	ln.Close()
	if listening, _ := listens(target.addrs); listening {
		t.Error("one that is gone is seen")
	}
	if _, known := listens([]string{"192.0.2.1:80"}); known {
		t.Error("another machine is known")
	}
}

func TestMistakesOfTheSetUpAreHinted(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
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
				if n := newsOf(t, run, c.kind); !strings.Contains(n.Hint, "--host-header rewrite") {
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
	alert, _ := local(t) // a server that answers as TLS does, version 1.2, alert 70
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
		if n := newsOf(t, run, kind); !strings.Contains(n.Hint, other) {
			t.Errorf("hint %q", n.Hint)
		}
		if len(run.local) > 0 {
			t.Errorf("and %+v", <-run.local)
		}
		_ = run.stop(t)
	}
}

func TestCommandOnTheConnectionOfTheTunnel(t *testing.T) {
	d := newDouble(t)
	d.exec = func(line string) (string, string, int) {
		if line != "replay evt_1 --json" {
			return "", `{"code":"not-found","title":"Not Found","status":404}`, 4
		}
		return `{"id":"evt_1"}` + "\n", "", 0
	}
	dialer, _ := newDialer(t, d.listen())
	run := startUp(t, dialer, Forward{Alias: "stripe-dev"})
	got(t, "ready", run.ready)
	got(t, "connection", d.conns)
	var out bytes.Buffer
	if err := run.Ask(t.Context(), Command{Name: "replay", Arg: "evt_1"}, &out); err != nil || out.String() != `{"id":"evt_1"}`+"\n" {
		t.Errorf("%q, %v", &out, err)
	}
	if err := run.Ask(t.Context(), Command{Name: "show", Arg: "evt_2"}, &out); exitOf(err) != ExitNotFound {
		t.Errorf("%v", err)
	}
	if n := len(d.conns); n != 0 {
		t.Errorf("%d more connections", n)
	}
	_ = run.stop(t)
	if err := run.Ask(t.Context(), Command{Name: "replay", Arg: "evt_1"}, &out); exitOf(err) != ExitUnreachable {
		t.Errorf("without a connection: %v", err)
	}
}
