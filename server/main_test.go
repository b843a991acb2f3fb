package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"relay"
	"relay/wire"
)

// patience is the longest wait of a test for something that normally takes a moment. It is long enough
// for a machine that stops for seconds.
const patience = time.Minute

// TestMain fails if goroutines outlive the tests. It waits for a while, because some goroutines end only
// some time after their connection or listener was closed.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		err := goleak.Find()
		for end := time.Now().Add(patience / 2); err != nil && time.Now().Before(end); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "goroutines were left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// upstream is a Capturer that answers as if it were a local server. By default it answers 200 with the
// exact bytes of the request as body.
type upstream struct {
	answer func(ctx context.Context, in *relay.Inbound) (relay.Outcome, bool)

	mu       sync.Mutex
	seen     int
	rejected []rejection
}

type rejection struct {
	alias, head, code string
}

func (u *upstream) Alias(label string) (*relay.Alias, bool) {
	if label != "shop" && label != "other" {
		return nil, false
	}
	return &relay.Alias{ID: 1, Name: label, Settings: relay.DefaultSettings()}, true
}

func (u *upstream) FindAlias(label string) (*relay.Alias, bool) { return u.Alias(label) }

func (u *upstream) Reject(in *relay.Inbound, why *relay.Error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rejected = append(u.rejected, rejection{in.Alias.Name, string(in.Head), why.Code})
}

func (u *upstream) rejections() []rejection {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]rejection(nil), u.rejected...)
}

func (u *upstream) captures() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen
}

func (u *upstream) Capture(ctx context.Context, in *relay.Inbound) relay.Outcome {
	u.mu.Lock()
	u.seen++
	u.mu.Unlock()
	if u.answer != nil {
		if out, done := u.answer(ctx, in); done {
			return out
		}
	}
	h, _, err := wire.Request(in.Head, wire.Limits{})
	if err != nil {
		return relay.Outcome{Answer: &relay.Answer{Error: relay.AsError(err)}}
	}
	body, err := readBody(h, in.Caller)
	if err != nil {
		return relay.Outcome{Answer: &relay.Answer{Error: relay.AsError(err)}}
	}
	whole := append(bytes.Clone(in.Head), body...)
	out := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(whole), whole)
	if _, err := in.Caller.Write(out); err != nil {
		in.Caller.Abort()
		return relay.Outcome{}
	}
	return relay.Outcome{KeepAlive: !h.Close}
}

// readBody reads a request body and returns its wire bytes. It gives the bytes after the body back to c.
func readBody(h *wire.Head, c relay.Caller) ([]byte, error) {
	b, all := wire.NewBody(h), []byte(nil)
	if _, end, err := b.Feed(nil); end || err != nil {
		return nil, err
	}
	buf := make([]byte, 700)
	for {
		k, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		n, end, err := b.Feed(buf[:k])
		if err != nil {
			return nil, err
		}
		all = append(all, buf[:n]...)
		if end {
			c.Unread(buf[n:k])
			return all, nil
		}
	}
}

// testOptions returns options for the base host relay.test and the alias domain hooks.test, with limits and a
// log.
func testOptions(t testing.TB, u *upstream) Options {
	return Options{
		Capture: u,
		Base: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "base %s %s tls=%v", r.Method, r.URL.RequestURI(), r.TLS != nil)
		}),
		Site:         relay.Site{Base: url.URL{Scheme: "http", Host: "relay.test"}, AliasDomain: "hooks.test"},
		MaxHead:      128 << 10,
		MaxTarget:    16 << 10,
		HeadTimeout:  10 * time.Second,
		IdleTimeout:  75 * time.Second,
		StallTimeout: 30 * time.Second,
		Log:          slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// start serves plain HTTP on loopback and stops at the end of the test.
func start(t testing.TB, o Options) (s *Server, addr string) {
	t.Helper()
	ln := listen(t)
	s = New(o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() { stop(t, s, done) })
	return s, ln.Addr().String()
}

func stop(t testing.TB, s *Server, done chan error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// say sends bytes on a new connection, and returns all bytes until the connection ends.
func say(t testing.TB, addr, request string) string {
	t.Helper()
	c := dial(t, addr)
	defer func() { _ = c.Close() }()
	send(t, c, request)
	return rest(t, c)
}

func send(t testing.TB, c net.Conn, p string) {
	t.Helper()
	if _, err := io.WriteString(c, p); err != nil {
		t.Fatal(err)
	}
}

func rest(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("after %q: %v", b, err)
	}
	return string(b)
}

// readAnswer reads one response with its body.
func readAnswer(t testing.TB, r *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func parse(t testing.TB, raw, method string) (*http.Response, string) {
	t.Helper()
	return readAnswer(t, bufio.NewReader(strings.NewReader(raw)), method)
}

func isReset(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && strings.Contains(err.Error(), "reset by peer")
}
