package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay"
)

const baseGet = "GET /x?y=1 HTTP/1.1\r\nHost: relay.test\r\n\r\n"

func TestBaseSite(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	c := dial(t, addr)
	r := bufio.NewReader(c)
	send(t, c, baseGet)
	if resp, body := readAnswer(t, r, "GET"); resp.StatusCode != 200 || !resp.Close || body != "base GET /x?y=1 tls=false" {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
	if got := rest(t, r); got != "" {
		t.Errorf("behind the answer came %q", got)
	}
}

// TestEmptyLineBeforeBaseRequest: an empty line before a request to the base site is skipped, at the
// beginning of a connection and after another request.
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

// TestBaseTargetThatIsNoURL: the base site answers invalid targets, and TRACE outside the API, with a problem
// that has a code.
func TestBaseTargetThatIsNoURL(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	for request, want := range map[string]string{
		"GET /api/v1/%zz HTTP/1.1\r\n": "400 request-malformed",
		"GET /%zz HTTP/1.1\r\n":        "400 request-malformed",
		"TRACE / HTTP/1.1\r\n":         "405 method-not-allowed",
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

// TestTraceReachesTheAPI: the API gets TRACE, as any other method. It alone knows which methods a path takes,
// and it checks the token first.
func TestTraceReachesTheAPI(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	c := dial(t, addr)
	send(t, c, "TRACE /api/v1/me HTTP/1.1\r\nHost: relay.test\r\n\r\n")
	if resp, body := readAnswer(t, bufio.NewReader(c), "TRACE"); resp.StatusCode != 200 || body != "base TRACE /api/v1/me tls=false" {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
}

// TestPanicOfThePage: a panic of a page ends its connection without an answer, and is logged as an error.
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

// TestHandover: requests to aliases and to the base site may come on one connection in any order. Over plain
// HTTP, an answer of the base site ends the connection, and each request to an alias is captured.
func TestHandover(t *testing.T) {
	t.Parallel()
	const (
		post    = "POST /api HTTP/1.1\r\nHost: relay.test\r\nContent-Length: 9\r\n\r\nGET / HTT"
		unknown = "GET / HTTP/1.1\r\nHost: nobody.hooks.test\r\n\r\n"
	)
	chunked := strings.Replace(post, "Content-Length: 9\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1)
	for name, tt := range map[string]struct {
		requests []string
		want     string // statuses of the answers, and the number of connections
	}{
		"alias":        {[]string{hello, baseGet, hello, hello, baseGet, hello}, "200 200 200 200 200 200, 3"},
		"first base":   {[]string{baseGet, baseGet, hello, hello, baseGet}, "200 200 200 200 200, 3"},
		"behind body":  {[]string{post, hello, post, post, hello}, "200 200 200 200 200, 4"},
		"pipelined":    {[]string{hello + hello + baseGet, "", "", hello}, "200 200 200 200, 2"},
		"no alias":     {[]string{baseGet, unknown}, "200 404, 2"},
		"foreign host": {[]string{hello, baseGet, strings.Replace(hello, "Shop.hooks", "example", 1)}, "200 200 421, 2"},
		"deeper":       {[]string{hello, baseGet, strings.Replace(hello, "Shop", "a.shop", 1)}, "200 200 421, 2"},
		"asterisk":     {[]string{strings.Replace(baseGet, "GET /", "OPTIONS *", 1)}, "400, 1"},
		"to nobody":    {[]string{baseGet, strings.Replace(unknown, "GET /", "OPTIONS *", 1)}, "200 404, 2"},
		"chunked":      {[]string{chunked, chunked}, "200 200, 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := &upstream{}
			s, addr := start(t, testOptions(t, u))
			var got []string
			conns := 0
			var c net.Conn
			var r *bufio.Reader
			for _, request := range tt.requests {
				if c == nil {
					c = dial(t, addr)
					r = bufio.NewReader(c)
					conns++
				}
				send(t, c, request)
				resp, _ := readAnswer(t, r, "POST")
				got = append(got, strconv.Itoa(resp.StatusCode))
				if resp.Close {
					if rest := rest(t, r); rest != "" {
						t.Errorf("behind the answer came %q", rest)
					}
					c = nil
				}
			}
			if got := fmt.Sprintf("%s, %d", strings.Join(got, " "), conns); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			want := strings.Count(strings.Join(tt.requests, ""), hello)
			if n := u.captures(); n != want {
				t.Errorf("%d captures, want %d", n, want)
			}
			until(t, func() bool { return s.Stats().Base == 0 })
		})
	}
}

// TestAliasRequestThatNetHTTPRefuses: requests to an alias that net/http would refuse are captured, or are
// stored as rejected with an error code of this package.
func TestAliasRequestThatNetHTTPRefuses(t *testing.T) {
	t.Parallel()
	const to = " HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: close\r\n"
	for name, tt := range map[string]struct {
		request, status, code string
	}{
		"escape in the target":    {"GET /100%zz" + to + "\r\n", "200", ""},
		"another expectation":     {"POST /" + to + "Expect: receipt\r\nContent-Length: 70000\r\n\r\n" + strings.Repeat("y", 70000), "200", ""},
		"announced trailer":       {"POST /" + to + "Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "200", ""},
		"two lengths":             {"POST /" + to + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", "400", relay.CodeRequestMalformed},
		"unknown coding":          {"POST /" + to + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501", relay.CodeTransferCodingUnsupported},
		"control byte":            {"GET /" + to + "X: \x01\r\n\r\n", "400", relay.CodeRequestMalformed},
		"version":                 {"GET / HTTP/3.0\r\nHost: shop.hooks.test\r\n\r\n", "505", relay.CodeHTTPVersionUnsupported},
		"long head":               {"GET /" + to + "X: " + strings.Repeat("z", 140<<10) + "\r\n\r\n", "431", relay.CodeHeadTooLarge},
		"expectation of no alias": {strings.Replace("GET /"+to+"Expect: receipt\r\n\r\n", "shop.hooks", "relay", 1), "417", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := &upstream{}
			s, addr := start(t, testOptions(t, u))
			c := dial(t, addr)
			r := bufio.NewReader(c)
			// The connection stays open after this request.
			send(t, c, hello)
			readAnswer(t, r, "POST")
			send(t, c, tt.request)
			resp, body := readAnswer(t, r, "POST")
			if got := strconv.Itoa(resp.StatusCode); got != tt.status || resp.Header.Get("Relay-Error") != tt.code {
				t.Fatalf("got %s %q, want %s %q", got, resp.Header.Get("Relay-Error"), tt.status, tt.code)
			}
			if tt.status == "200" && body != tt.request {
				t.Errorf("the alias got %.200q", body)
			}
			if rest := rest(t, r); rest != "" {
				t.Errorf("behind the answer came %.200q", rest)
			}
			for end := time.Now().Add(patience); s.Stats().Base != 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("net/http owns a connection that has ended: %+v", s.Stats())
				}
			}
			if tt.code == "" {
				return
			}
			// The request is stored only after the answer, so the test waits for it.
			for end := time.Now().Add(patience); len(u.rejections()) == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no rejected event")
				}
			}
			if got := u.rejections()[0]; got.alias != "shop" || got.code != tt.code {
				t.Errorf("rejected %+v", got)
			}
		})
	}
}

// TestHandoverInsideABody: bytes that came together with the head of a request to the base site reach the
// handler as the body of that request.
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

// TestBaseAnswersBeforeTheBody: if a handler does not read the body, the caller gets its answer before it
// sends the body. A handler that reads the body makes the server send 100 Continue.
func TestBaseAnswersBeforeTheBody(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.StallTimeout = time.Hour
	o.Base = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			_, _ = io.Copy(w, r.Body)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	_, addr := start(t, o)
	for _, head := range []string{"Content-Length: 30\r\nExpect: 100-continue\r\n\r\n", "Content-Length: 5000000\r\n\r\n"} {
		c := dial(t, addr)
		send(t, c, "POST / HTTP/1.1\r\nHost: relay.test\r\n"+head)
		if resp, _ := readAnswer(t, bufio.NewReader(c), "POST"); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q: %d", head, resp.StatusCode)
		}
	}
	c := dial(t, addr)
	send(t, c, "POST /read HTTP/1.1\r\nHost: relay.test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, _ = r.ReadString('\n')
	send(t, c, "ok")
	if _, body := readAnswer(t, r, "POST"); body != "ok" {
		t.Errorf("body %q", body)
	}
}

// TestBaseHeadLimit: the base site accepts a head of 2 MiB if MaxHead is 0 (no limit) or the largest int.
func TestBaseHeadLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, math.MaxInt} {
		o := testOptions(t, &upstream{})
		o.MaxHead = limit
		_, addr := start(t, o)
		c := dial(t, addr)
		go func() {
			_, _ = io.WriteString(c, strings.Replace(baseGet, "\r\n\r\n", "\r\nX: "+strings.Repeat("x", 2<<20)+"\r\n\r\n", 1))
		}()
		if resp, _ := readAnswer(t, bufio.NewReader(c), "GET"); resp.StatusCode != http.StatusOK {
			t.Errorf("limit %d: %d", limit, resp.StatusCode)
		}
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

// TestAnswerToABodyThatNeverComes: a caller whose body never comes gets its answer after StallTimeout,
// whichever part of the server makes the answer.
func TestAnswerToABodyThatNeverComes(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.StallTimeout = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		scheme, target, host string
		want                 int
	}{
		"health check":            {"http", "/healthz", "relay.test", http.StatusMethodNotAllowed},
		"health check by address": {"http", "/healthz", "192.0.2.1", http.StatusMethodNotAllowed},
		"redirect":                {"https", "/", "relay.test", http.StatusPermanentRedirect},
		"handler that reads":      {"http", "/read", "relay.test", http.StatusRequestTimeout},
		"handler that does not":   {"http", "/", "relay.test", http.StatusUnauthorized},
	} {
		o := o
		o.Site.Base.Scheme, o.RedirectPlain = tt.scheme, tt.scheme == "https"
		o.Base = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status := http.StatusUnauthorized
			if r.URL.Path == "/read" {
				if _, err := io.ReadAll(r.Body); err != nil {
					status = http.StatusRequestTimeout
				}
			}
			w.WriteHeader(status)
		})
		for _, framing := range []string{"Content-Length: 10\r\n\r\nfirst", "Transfer-Encoding: chunked\r\n\r\n5\r\nfirst", "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, addr := start(t, o)
				got := say(t, addr, "POST "+tt.target+" HTTP/1.1\r\nHost: "+tt.host+"\r\n"+framing)
				got = strings.TrimPrefix(got, "HTTP/1.1 100 Continue\r\n\r\n")
				if resp, _ := parse(t, got, "POST"); resp.StatusCode != tt.want {
					t.Errorf("%.40q: got %d, want %d", framing, resp.StatusCode, tt.want)
				}
			})
		}
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

// TestStream: an event of a stream is sent at once, and Shutdown succeeds although the stream is open.
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
	// Shutdown fails if a stream does not end.
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}
