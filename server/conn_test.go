package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
)

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestPanicEndsItsConnectionOnly: a panic in a capture resets its connection and is logged with its stack.
// Another connection is still served.
func TestPanicEndsItsConnectionOnly(t *testing.T) {
	t.Parallel()
	u := &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		if bytes.HasPrefix(in.Head, []byte("GET /panic ")) {
			_, _ = io.WriteString(in.Caller, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			panic("a bug on the way of one request")
		}
		return relay.Outcome{}, false
	}}
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lockedBuffer
			o := testOptions(t, u)
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			var open func() net.Conn
			if secure {
				addr, cfg := startTLS(t, o)
				open = func() net.Conn {
					c, err := dialTLS(t, addr, cfg, "shop.hooks.test")
					if err != nil {
						t.Fatal(err)
					}
					return c
				}
			} else {
				_, addr := start(t, o)
				open = func() net.Conn { return dial(t, addr) }
			}
			other, bad := open(), open()
			answers := bufio.NewReader(other)
			send(t, other, hello)
			readAnswer(t, answers, "POST")
			send(t, bad, "GET /panic HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
			if b, err := io.ReadAll(bad); err == nil {
				t.Errorf("the caller sees an orderly end after %q", b)
			}
			send(t, other, hello)
			if resp, _ := readAnswer(t, answers, "POST"); resp.StatusCode != 200 {
				t.Errorf("another connection got %d", resp.StatusCode)
			}
			until(t, func() bool { return strings.Contains(log.String(), "a bug on the way of one request") })
			if got := log.String(); !strings.Contains(got, "panic while serving a connection") || !strings.Contains(got, "conn_test.go") {
				t.Errorf("no stack in the log: %s", got)
			}
			// The stop at the end of the test waits for all captures in progress, so it shows that the panicked
			// one does not count among them.
		})
	}
}

// TestSlowRejectDoesNotDelayTheAnswer: refused requests are answered although the Capturer's method Reject,
// which stores them, has not returned.
func TestSlowRejectDoesNotDelayTheAnswer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	_, addr := start(t, testOptionsFor(t, &slowRejects{release: release}))
	for name, request := range map[string]string{
		"malformed": "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"method":    "CONNECT / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n",
	} {
		c := dial(t, addr)
		send(t, c, request)
		if resp, _ := readAnswer(t, bufio.NewReader(c), "GET"); resp.StatusCode < 400 {
			t.Errorf("%s: got %d", name, resp.StatusCode)
		}
	}
	close(release)
}

type slowRejects struct {
	upstream
	release chan struct{}
}

func (s *slowRejects) Reject(*relay.Inbound, *relay.Error) { <-s.release }

func testOptionsFor(t testing.TB, capture Capturer) Options {
	o := testOptions(t, &upstream{})
	o.Capture = capture
	return o
}

// TestMinimumRateStartsAnew: a read that failed because of MinRate does not make the next read fail at once.
// A body that comes after 100 s is read after fewer than ten failed reads.
func TestMinimumRateStartsAnew(t *testing.T) {
	t.Parallel()
	u, failed, got := &upstream{}, 0, 0
	piped(t, func(o *Options) { o.Capture, o.MinRate, o.MinRateGrace = u, 1<<10, 30*time.Second }, func(t *testing.T, dial func() net.Conn) {
		u.answer = func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
			for b := make([]byte, 10); got < 10 && failed < 10; {
				n, err := in.Caller.Read(b)
				if got += n; err != nil {
					failed++
				}
			}
			_, _ = io.WriteString(in.Caller, "HTTP/1.1 204 No Content\r\n\r\n")
			return relay.Outcome{}, true
		}
		c := dial()
		var sender sync.WaitGroup
		defer sender.Wait()
		defer func() { _ = c.Close() }()
		sender.Go(func() {
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: shop.hooks.test\r\nContent-Length: 10\r\n\r\n")
			time.Sleep(100 * time.Second)
			_, _ = c.Write(make([]byte, 10))
		})
		resp, _ := readAnswer(t, bufio.NewReader(c), "POST")
		if resp.StatusCode != 204 || got != 10 {
			t.Errorf("got %d after %d reads without a byte and %d bytes", resp.StatusCode, failed, got)
		}
	})
}

// TestMinimumRateOfABody: a body whose average is below MinRate fails with request-timeout after the grace. A
// faster body, one that pauses within the grace, and one with a slow reader do not fail.
func TestMinimumRateOfABody(t *testing.T) {
	t.Parallel()
	type drip struct {
		pieces, size int
		every        time.Duration
		readEvery    time.Duration // pause of the capture before each of its reads
		fails        time.Duration // time until the body fails; 0 = it does not fail
	}
	for name, d := range map[string]drip{
		"drip":           {pieces: 1000, size: 1, every: 5 * time.Second, fails: 30 * time.Second},
		"too slow":       {pieces: 1000, size: 900, every: time.Second, fails: 30 * time.Second},
		"fast enough":    {pieces: 200, size: 1100, every: time.Second},
		"first nothing":  {pieces: 2, size: 64 << 10, every: 29 * time.Second},
		"slow receiver":  {pieces: 100, size: 10, every: 0, readEvery: 20 * time.Second},
		"fast then slow": {pieces: 60, size: 2 << 10, every: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var failed time.Duration
			u := &upstream{}
			piped(t, func(o *Options) { o.Capture, o.MinRate, o.MinRateGrace = u, 1<<10, 30*time.Second }, func(t *testing.T, dial func() net.Conn) {
				u.answer = func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
					begun, b := time.Now(), make([]byte, 64<<10)
					for n := 0; n < d.pieces*d.size; {
						time.Sleep(d.readEvery)
						k, err := in.Caller.Read(b)
						if err != nil {
							failed = time.Since(begun)
							return relay.Outcome{Answer: &relay.Answer{Error: relay.AsError(err)}}, true
						}
						n += k
					}
					_, _ = io.WriteString(in.Caller, "HTTP/1.1 204 No Content\r\n\r\n")
					return relay.Outcome{}, true
				}
				c := dial()
				var sender sync.WaitGroup
				defer sender.Wait()
				defer func() { _ = c.Close() }()
				sender.Go(func() {
					_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: shop.hooks.test\r\nContent-Length: 1000000\r\n\r\n")
					for range d.pieces {
						time.Sleep(d.every)
						if _, err := c.Write(make([]byte, d.size)); err != nil {
							return
						}
					}
				})
				resp, _ := readAnswer(t, bufio.NewReader(c), "POST")
				switch {
				case d.fails == 0 && resp.StatusCode != 204:
					t.Errorf("got %d after %v", resp.StatusCode, failed)
				case d.fails > 0 && (resp.StatusCode != 408 || failed < d.fails || failed > d.fails+time.Second):
					t.Errorf("got %d after %v, want 408 after %v", resp.StatusCode, failed, d.fails)
				}
			})
		})
	}
}

// TestOldProtocolsOverTLS: clients that offer only http/1.0, or no ALPN, are served; h2 is chosen only for
// the base host.
func TestOldProtocolsOverTLS(t *testing.T) {
	t.Parallel()
	addr, cfg := startTLS(t, testOptions(t, &upstream{}))
	for _, protos := range [][]string{{"http/1.0"}, nil, {"h2", "http/1.0"}} {
		for _, host := range []string{"shop.hooks.test", "relay.test"} {
			own := cfg.Clone()
			own.NextProtos, own.ServerName = protos, host
			c, err := tls.Dial("tcp", addr, own)
			if err != nil {
				t.Errorf("%v at %s: %v", protos, host, err)
				continue
			}
			if proto := c.ConnectionState().NegotiatedProtocol; proto != "h2" {
				send(t, c, "GET / HTTP/1.0\r\nHost: "+host+"\r\n\r\n")
				if resp, _ := readAnswer(t, bufio.NewReader(c), "GET"); resp.StatusCode != 200 {
					t.Errorf("%v at %s: got %d", protos, host, resp.StatusCode)
				}
			} else if host != "relay.test" {
				t.Errorf("an alias speaks %q", proto)
			}
			_ = c.Close()
		}
	}
}
