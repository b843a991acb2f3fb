package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
)

const hello = "POST /hook?x=1 HTTP/1.1\r\nhOST: Shop.hooks.test:80\r\nX-Dup: 1\r\nContent-Length: 5\r\n\r\nhello"

func TestRequestReachesCaptureUnchanged(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	c := dial(t, addr)
	send(t, c, hello)
	_, body := readAnswer(t, bufio.NewReader(c), "POST")
	if diff := cmp.Diff(hello, body); diff != "" {
		t.Error(diff)
	}
}

// TestKeepAlive: requests of different forms arrive unchanged at the Capturer, one after another on one
// connection.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	c := dial(t, addr)
	r := bufio.NewReader(c)
	for _, req := range []string{
		hello,
		"GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: shop.hooks.test\r\nTransfer-Encoding: chunked\r\n\r\n005;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n",
		"GET http://shop.hooks.test/abs HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: other.hooks.test\r\n\r\n",
		"POST /big HTTP/1.1\r\nHost: shop.hooks.test\r\nX: " + strings.Repeat("x", 100<<10) + "\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("b", 300000),
		hello,
	} {
		send(t, c, req)
		_, body := readAnswer(t, r, "POST")
		if diff := cmp.Diff(req, body); diff != "" {
			t.Fatal(diff)
		}
	}
}

// TestEmptyLinesBetweenRequests: up to eight bytes of empty lines between two requests are skipped; more of
// them, and other bytes, are refused.
func TestEmptyLinesBetweenRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines string
		taken bool
	}{
		{"\n", true},
		{"\r\n", true},
		{"\r\n\r\n", true},
		{"\n\n", true},
		{"\n\r\n", true},
		{strings.Repeat("\n", 8), true},
		{strings.Repeat("\n", 9), false},
		{strings.Repeat("\r\n", 6), false},
		{"\r", false},
		{" \r\n", false},
		{"\n x", false},
	} {
		for _, apart := range []bool{false, true} {
			_, addr := start(t, testOptions(t, &upstream{}))
			conn := dial(t, addr)
			r := bufio.NewReader(conn)
			if apart {
				send(t, conn, hello)
				readAnswer(t, r, "POST")
				send(t, conn, c.lines)
				send(t, conn, hello)
			} else {
				send(t, conn, hello+c.lines+hello)
				readAnswer(t, r, "POST")
			}
			res, body := readAnswer(t, r, "POST")
			if taken := res.StatusCode == 200 && body == hello; taken != c.taken {
				t.Errorf("%q, apart %v: answered %d %q", c.lines, apart, res.StatusCode, body)
			}
		}
	}
}

func TestPipelining(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	var all strings.Builder
	var want []string
	for i := range 50 {
		body := strings.Repeat("z", i*37)
		req := fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: shop.hooks.test\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body)
		if i%2 == 1 {
			req = fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: shop.hooks.test\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%sx\r\n0\r\n\r\n", i, len(body)+1, body)
		}
		want = append(want, req)
		all.WriteString(req)
	}
	c := dial(t, addr)
	go func() { _, _ = io.WriteString(c, all.String()) }()
	r := bufio.NewReader(c)
	for i, req := range want {
		if _, body := readAnswer(t, r, "POST"); body != req {
			t.Fatalf("answer %d: got %q, want %q", i, body, req)
		}
	}
}

func TestByteByByte(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	c := dial(t, addr)
	req := "\r\nPOST / HTTP/1.1\r\nHost: shop.hooks.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\n\r\n"
	go func() {
		for i := range len(req) {
			_, _ = io.WriteString(c, req[i:i+1])
		}
	}()
	if _, body := readAnswer(t, bufio.NewReader(c), "POST"); body != req[2:] {
		t.Errorf("got %q, want %q", body, req[2:])
	}
}

func TestConnectionCloseIsOrderly(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	req := "GET / HTTP/1.0\r\nHost: shop.hooks.test\r\n\r\n"
	got := say(t, addr, req+"trailing bytes that nobody reads")
	if _, body := parse(t, got, "GET"); body != req {
		t.Errorf("got %q, want %q", body, req)
	}
}

// piped starts a server in fake time, with the options as the function change has changed them, and calls f.
// The function dial opens a connection to the server in memory.
func piped(t *testing.T, change func(*Options), f func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t, &upstream{})
		if change != nil {
			change(&o)
		}
		s, ln := New(o), newHandoff()
		done := make(chan error, 1)
		go func() { done <- s.Serve(ln) }()
		f(t, func() net.Conn {
			mine, theirs := net.Pipe()
			t.Cleanup(func() { _ = mine.Close() })
			ln.deliver(theirs, nil)
			return mine
		})
		stop(t, s, done)
	})
}

func TestSlowHead(t *testing.T) {
	t.Parallel()
	piped(t, nil, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		begun := time.Now()
		send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n")
		resp, _ := parse(t, rest(t, c), "GET")
		if took := time.Since(begun); resp.StatusCode != 408 || resp.Header.Get("Relay-Error") != "request-timeout" || took != 10*time.Second {
			t.Errorf("got %d %v after %v", resp.StatusCode, resp.Header, took)
		}
	})
}

// TestHeadThatBeginsAsTheStopEnds: after Shutdown, deadlineOfHead gives a head only lingerGrace, and not
// HeadTimeout.
func TestHeadThatBeginsAsTheStopEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := net.Pipe()
		defer func() { _, _ = mine.Close(), theirs.Close() }()
		s := New(testOptions(t, &upstream{}))
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		c, begun := &conn{srv: s, net: mine}, time.Now()
		c.deadlineOfHead()
		if _, err := c.net.Read(make([]byte, 1)); time.Since(begun) != lingerGrace {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}

func TestIdleConnectionsAreClosedSilently(t *testing.T) {
	t.Parallel()
	piped(t, nil, func(t *testing.T, dial func() net.Conn) {
		c, begun := dial(), time.Now()
		if got, took := rest(t, c), time.Since(begun); got != "" || took < 75*time.Second || took > 80*time.Second {
			t.Errorf("unused connection: got %q after %v", got, took)
		}
		c = dial()
		r := bufio.NewReader(c)
		for range 2 {
			// After this pause, less than the idle timeout is left until the deadline, so the server moves the
			// deadline.
			time.Sleep(10 * time.Second)
			send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
			readAnswer(t, r, "GET")
		}
		for _, part := range []string{"POST / HTTP/1.1\r\nHost: shop.hooks.test\r\nContent-Length: 1\r\n\r\n", "x"} {
			send(t, c, part) // reading the body sets another deadline, after which that of the idle connection must be set again
		}
		readAnswer(t, r, "POST")
		begun = time.Now()
		// Some old clients send an empty line after a request. An empty line does not count as the beginning
		// of a request, so it does not extend the idle timeout.
		go func() { _, _ = io.WriteString(c, "\r\n") }()
		if got, took := rest(t, r), time.Since(begun); got != "" || took < 75*time.Second || took > 80*time.Second {
			t.Errorf("kept connection: got %q after %v", got, took)
		}
	})
}

func TestStalledBody(t *testing.T) {
	t.Parallel()
	piped(t, nil, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		send(t, c, "POST / HTTP/1.1\r\nHost: shop.hooks.test\r\nContent-Length: 5\r\n\r\n")
		// The body takes longer than the head timeout, but each piece arrives within the stall timeout of 30
		// s.
		for range 4 {
			time.Sleep(29 * time.Second)
			send(t, c, "x")
		}
		begun := time.Now()
		resp, _ := parse(t, rest(t, c), "POST")
		if took := time.Since(begun); resp.StatusCode != 408 || took != 30*time.Second {
			t.Errorf("got %d after %v", resp.StatusCode, took)
		}
	})
}

func TestCallerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	u := &upstream{}
	piped(t, func(o *Options) { o.Capture = u }, func(t *testing.T, dial func() net.Conn) {
		failed := make(chan error, 1)
		u.answer = func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
			_, err := in.Caller.Write(make([]byte, 200<<10))
			failed <- err
			in.Caller.Abort()
			return relay.Outcome{}, true
		}
		c := dial()
		send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
		b := make([]byte, 1000)
		// The caller reads 1,000 bytes every 14 s, which is less than the stall timeout, so the write does
		// not fail yet.
		for range 10 {
			time.Sleep(14 * time.Second)
			if _, err := io.ReadFull(c, b); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		err := <-failed
		if took := time.Since(begun); err == nil || took < 20*time.Second || took > 64*time.Second {
			t.Errorf("got %v after %v", err, took)
		}
	})
}

func TestAbortIsAReset(t *testing.T) {
	t.Parallel()
	u := &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		_, _ = io.WriteString(in.Caller, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
		in.Caller.Abort()
		return relay.Outcome{}, true
	}}
	_, addr := start(t, testOptions(t, u))
	c := dial(t, addr)
	send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
	got, err := io.ReadAll(c)
	if !isReset(err) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestSlowHeads: a thousand callers that never finish their heads get 408 and are disconnected, and another
// caller is served.
func TestSlowHeads(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.Log = nil
	o.HeadTimeout = 500 * time.Millisecond
	s, addr := start(t, o)
	var wg sync.WaitGroup
	for range 1000 {
		c := dial(t, addr)
		send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nX-")
		wg.Go(func() {
			got, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 408 ") {
				t.Errorf("got %.60q, %v", got, err)
			}
			_ = c.Close()
		})
	}
	c := dial(t, addr)
	send(t, c, hello)
	readAnswer(t, bufio.NewReader(c), "POST")
	_ = c.Close()
	wg.Wait()
	until(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 0
	})
}

// until polls until a condition is true.
func until(t testing.TB, true func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !true(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("condition was not met within", patience)
		}
	}
}

// TestAnswerSurvivesUnreadBody: a caller that writes 8 MiB before it reads gets the answer 404, although the
// body is not read.
func TestAnswerSurvivesUnreadBody(t *testing.T) {
	t.Parallel()
	_, addr := start(t, testOptions(t, &upstream{}))
	const size = 8 << 20
	c := dial(t, addr)
	send(t, c, fmt.Sprintf("POST / HTTP/1.1\r\nHost: nobody.hooks.test\r\nContent-Length: %d\r\n\r\n", size))
	// Some clients write their whole request before they read.
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	resp, _ := parse(t, rest(t, c), "POST")
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("got %d", resp.StatusCode)
	}
}

// ending is a connection in memory with a CloseWrite, which does nothing; without it, closeOrderly would not
// linger.
type ending struct{ net.Conn }

func (ending) CloseWrite() error { return nil }

// TestLingeringClose: after a refused request, a silent or very slow caller is disconnected after lingerTime.
// A faster one gets more time, up to lingerMaxTime.
func TestLingeringClose(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		times, bytes int // number of writes of the caller, one second apart, and bytes of each
		want         time.Duration
	}{
		"silent":  {0, 0, lingerTime},
		"trickle": {100, 1, lingerTime},
		"upload":  {5, 64 << 10, lingerTime + 5*(64<<10)*time.Second/lingerPace},
		"endless": {100, 64 << 10, lingerMaxTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, ln := New(testOptions(t, &upstream{})), newHandoff()
				done := make(chan error, 1)
				go func() { done <- s.Serve(ln) }()
				c, theirs := net.Pipe()
				ln.deliver(ending{theirs}, nil)
				send(t, c, "POST / HTTP/1.1\r\nHost: nobody.hooks.test\r\nContent-Length: 1000\r\n\r\n")
				readAnswer(t, bufio.NewReader(c), "POST")
				begun := time.Now()
				for range tt.times {
					time.Sleep(time.Second)
					if _, err := c.Write(make([]byte, tt.bytes)); err != nil {
						break
					}
				}
				// Read returns when the server closes the pipe.
				_, _ = c.Read(make([]byte, 1))
				if took := time.Since(begun); took < tt.want || took > tt.want+time.Second {
					t.Errorf("closed after %v, want %v", took, tt.want)
				}
				_ = c.Close()
				stop(t, s, done)
			})
		})
	}
}
