package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

const baseGet = "GET /x?y=1 HTTP/1.1\r\nHost: relay.test\r\n\r\n"

func TestBaseSite(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	c := dial(t, addr)
	r := bufio.NewReader(c)
	send(t, c, baseGet+baseGet) // pipelined: what was read goes along
	for range 2 {
		if resp, body := readAnswer(t, r, "GET"); resp.StatusCode != 200 || body != "base GET /x?y=1 tls=false" {
			t.Errorf("got %d %q", resp.StatusCode, body)
		}
	}
}

// An empty line before a request, as some old clients send behind a body, is passed
// over before the base site as well.
func TestEmptyLineBeforeBaseRequest(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	for name, before := range map[string]string{"first": "", "behind another": hello} {
		c := dial(t, addr)
		r := bufio.NewReader(c)
		send(t, c, before+"\r\n"+baseGet)
		if before != "" {
			readAnswer(t, r, "POST")
		}
		if resp, body := readAnswer(t, r, "GET"); resp.StatusCode != 200 || body != "base GET /x?y=1 tls=false" {
			t.Errorf("%s: got %d %q", name, resp.StatusCode, body)
		}
	}
}

// A caller of the base site gets a problem with a code for each request, also for one
// that net/http would have refused in plain text.
func TestBaseTargetThatIsNoURL(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	for request, want := range map[string]string{
		"GET /api/v1/%zz HTTP/1.1\r\n":  "400 request-malformed",
		"GET /%zz HTTP/1.1\r\n":         "400 request-malformed",
		"TRACE /api/v1/me HTTP/1.1\r\n": "405 method-not-allowed",
	} {
		c := dial(t, addr)
		send(t, c, request+"Host: relay.test\r\n\r\n")
		resp, body := readAnswer(t, bufio.NewReader(c), "GET")
		status, code, _ := strings.Cut(want, " ")
		if strconv.Itoa(resp.StatusCode) != status || !strings.Contains(body, `"`+code+`"`) ||
			resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%q: got %d %q", request, resp.StatusCode, body)
		}
	}
}

// What a page breaks down with is told as an error; it used to be a debug line.
func TestPanicOfThePage(t *testing.T) {
	t.Parallel()
	o, lines := testOptions(t, &upstream{}), make(chan string, 100)
	o.Log = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) { lines <- string(p) }), nil))
	o.Base = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug of ours") })
	_, addr := start(t, o)
	c := dial(t, addr)
	send(t, c, baseGet)
	if got := rest(t, c); got != "" {
		t.Errorf("got %q", got)
	}
	if line := <-lines; !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "a bug of ours") {
		t.Errorf("got %s", line)
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// A connection may go from an alias to the base site, but not back.
func TestHandover(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ second, code string }{
		"alias":         {hello, "host-unknown"},
		"unknown alias": {strings.Replace(hello, "Shop.", "nobody.", 1), "host-unknown"},
		"foreign host":  {strings.Replace(hello, "Shop.hooks", "example", 1), "host-unknown"},
		"deeper":        {strings.Replace(hello, "Shop", "a.shop", 1), "host-unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := &upstream{}
			_, addr := start(t, testOptions(t, u))
			c := dial(t, addr)
			r := bufio.NewReader(c)
			send(t, c, hello)
			readAnswer(t, r, "POST")
			send(t, c, baseGet)
			readAnswer(t, r, "GET")
			send(t, c, tt.second)
			resp, body := readAnswer(t, r, "POST")
			if resp.StatusCode != 421 || resp.Header.Get("Relay-Error") != tt.code || !resp.Close ||
				resp.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, tt.code) {
				t.Errorf("got %d %v %s", resp.StatusCode, resp.Header, body)
			}
			if n := u.captures(); n != 1 {
				t.Errorf("%d captures", n)
			}
		})
	}
}

// Bytes that came with the head of a base request belong to its body.
func TestHandoverInsideABody(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.Base = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	})
	_, addr := start(t, o)
	c := dial(t, addr)
	send(t, c, "POST / HTTP/1.1\r\nHost: relay.test\r\nContent-Length: 100000\r\n\r\nfirst")
	go func() { _, _ = c.Write(bytes.Repeat([]byte("x"), 99995)) }()
	if _, body := readAnswer(t, bufio.NewReader(c), "POST"); body != "first"+strings.Repeat("x", 99995) {
		t.Errorf("got %d bytes", len(body))
	}
}

func TestBaseBodyStalls(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.StallTimeout = 100 * time.Millisecond
	failed := make(chan error, 1)
	o.Base = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		failed <- err
	})
	_, addr := start(t, o)
	c := dial(t, addr)
	send(t, c, "POST / HTTP/1.1\r\nHost: relay.test\r\nContent-Length: 10\r\n\r\nfirst")
	if err := <-failed; err == nil {
		t.Error("a body that stalls was read to its end")
	}
}

func TestRedirect(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.RedirectPlain = true
	o.Site.Base = url.URL{Scheme: "https", Host: "relay.test:8443"}
	_, addr := start(t, o)
	for request, want := range map[string]string{
		"/":          "https://relay.test:8443/",
		"/a/b?c=%2f": "https://relay.test:8443/a/b?c=%2f",
		"//evil/x":   "https://relay.test:8443//evil/x",
	} {
		got := say(t, addr, "POST "+request+" HTTP/1.1\r\nHost: Relay.test:80\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		if resp, _ := parse(t, got, "POST"); resp.StatusCode != 308 || resp.Header.Get("Location") != want {
			t.Errorf("%s: got %d %v", request, resp.StatusCode, resp.Header)
		}
	}
	got := say(t, addr, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n\r\n")
	if resp, _ := parse(t, got, "GET"); resp.StatusCode != 200 {
		t.Errorf("alias: got %d", resp.StatusCode)
	}
	got = say(t, addr, "GET /healthz HTTP/1.1\r\nHost: relay.test\r\nConnection: close\r\n\r\n")
	if resp, _ := parse(t, got, "GET"); resp.StatusCode != 200 {
		t.Errorf("health: got %d", resp.StatusCode)
	}
}

// Streams of the base site flow, and end when the server stops.
func TestStream(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.Base = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	s, addr := start(t, o)
	c := dial(t, addr)
	send(t, c, "GET /stream HTTP/1.1\r\nHost: relay.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 9)
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "data: 1\n\n" {
		t.Fatalf("got %q, %v", b, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil { // it would wait for a stream that does not end
		t.Errorf("shutdown: %v", err)
	}
}
