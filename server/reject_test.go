package server

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"relay/admission"
)

func TestRefusedWhereAllAreBusy(t *testing.T) {
	t.Parallel()
	u, begun, release := blocking()
	o := testOptions(t, u)
	o.MaxConns = 2
	s, addr := start(t, o)
	// The answer depends on the bytes of the request, so the server must wait for them even on a busy machine.
	s.rejectReadTimeout = patience
	busy := []net.Conn{dial(t, addr), dial(t, addr)}
	for _, c := range busy {
		send(t, c, slow)
		<-begun
	}
	checkProblem(t, say(t, addr, hello), 503, "overloaded", "Retry-After: 5")
	head := say(t, addr, "HEAD / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
	if !strings.HasPrefix(head, "HTTP/1.1 503 ") || !strings.HasSuffix(head, "\r\n\r\n") {
		t.Errorf("HEAD: got %q", head)
	}
	close(release)
	for _, c := range busy {
		if _, body := readAnswer(t, bufio.NewReader(c), "GET"); body != slow {
			t.Errorf("busy one: got %q", body)
		}
	}
	until(t, func() bool { return waiting(s) == 2 })
	if _, body := parse(t, say(t, addr, strings.Replace(slow, "1.1", "1.0", 1)), "GET"); !strings.HasPrefix(body, "GET /slow") {
		t.Errorf("afterwards: got %q", body)
	}
	if n := count(t, s.met.refused[admission.ReasonTotal]); n != 2 {
		t.Errorf("%v refused", n)
	}
}

func TestRefusedByTLS(t *testing.T) {
	t.Parallel()
	u, begun, release := blocking()
	o := testOptions(t, u)
	o.MaxConns = 1
	addr, cfg := startTLS(t, o)
	c, err := dialTLS(t, addr, cfg, "shop.hooks.test")
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, slow)
	<-begun
	if _, err := dialTLS(t, addr, cfg, "shop.hooks.test"); err == nil {
		t.Error("a connection above the bound got through its handshake")
	}
	close(release)
	readAnswer(t, bufio.NewReader(c), "GET")
}

// TestRefusalsAreBounded: for 500 connections over the limit, at most maxRejectors goroutines run, and each
// connection gets 503.
func TestRefusalsAreBounded(t *testing.T) {
	u, begun, release := blocking()
	o := testOptions(t, u)
	o.MaxConns, o.Log = 1, nil
	s, addr := start(t, o)
	c := dial(t, addr)
	send(t, c, slow)
	<-begun
	conns, most := make([]net.Conn, 500), 0
	// Each goroutine of answerOverloaded waits a second for the first byte of the request, so look finds it.
	look := func() { most = max(most, goroutinesIn("relay/server.(*conn).answerOverloaded")) }
	for i := range conns {
		// This connection sends nothing.
		conns[i] = dial(t, addr)
		if i%20 == 19 {
			look()
		}
	}
	until(t, func() bool { look(); return count(t, s.met.refused[admission.ReasonTotal]) == 500 })
	if most == 0 || most > maxRejectors {
		t.Errorf("%d goroutines for connections that were refused", most)
	}
	answered := 0
	for _, c := range conns {
		if b, _ := io.ReadAll(c); strings.HasPrefix(string(b), "HTTP/1.1 503 ") {
			answered++
		}
		_ = c.Close()
	}
	if answered != len(conns) {
		// A lost answer cannot be the effect of a reset, because a reset needs unread bytes, and the callers
		// have sent nothing.
		t.Errorf("only %d of %d got an answer", answered, len(conns))
	}
	close(release)
	readAnswer(t, bufio.NewReader(c), "GET")
}

// failing is a listener whose Accept first returns the errors that were sent to the channel times.
type failing struct {
	*handoff
	times chan error
}

func (f failing) Accept() (net.Conn, error) {
	select {
	case err := <-f.times:
		return nil, err
	default:
		return f.handoff.Accept()
	}
}

func TestAcceptWithoutDescriptors(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	s := New(o)
	ln := failing{newHandoff(), make(chan error, 3)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	defer stop(t, s, done)
	idle := make([]net.Conn, 16+4)
	for i := range idle {
		mine, theirs := net.Pipe()
		t.Cleanup(func() { _ = mine.Close() })
		ln.deliver(theirs, nil)
		idle[i] = mine
	}
	until(t, func() bool { return waiting(s) == len(idle) })
	ln.times <- &net.OpError{Op: "accept", Net: "tcp", Err: fmt.Errorf("accept4: %w", syscall.EMFILE)}
	mine, theirs := net.Pipe()
	defer func() { _ = mine.Close() }()
	// The server is already waiting in Accept, which returns this connection. The next call of Accept fails
	// with EMFILE, and the server calls it again.
	ln.deliver(theirs, nil)
	until(t, func() bool { return count(t, s.met.failed) == 1 })
	for _, c := range idle[:16] {
		if got := rest(t, c); got != "" {
			t.Errorf("got %q", got)
		}
	}
	send(t, idle[16], hello)
	readAnswer(t, bufio.NewReader(idle[16]), "POST")
	mine2, theirs2 := net.Pipe()
	defer func() { _ = mine2.Close() }()
	ln.deliver(theirs2, nil)
	send(t, mine2, hello)
	readAnswer(t, bufio.NewReader(mine2), "POST")
}

// TestAcceptsThatFailAreOneLine: six failed accepts write one log line, and all six are counted.
func TestAcceptsThatFailAreOneLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t, &upstream{})
		var log strings.Builder
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		s := New(o)
		ln := failing{newHandoff(), make(chan error, 6)}
		for range cap(ln.times) {
			ln.times <- &net.OpError{Op: "accept", Net: "tcp", Err: fmt.Errorf("accept4: %w", syscall.EMFILE)}
		}
		done := make(chan error, 1)
		go func() { done <- s.Serve(ln) }()
		time.Sleep(logInterval / 2)
		stop(t, s, done)
		if n := strings.Count(log.String(), "too many open files"); n != 1 || count(t, s.met.failed) != 6 {
			t.Errorf("%d lines for %v failures:\n%s", n, count(t, s.met.failed), log.String())
		}
	})
}

// TestLingeringCloseForgetsTheHead: during the lingering close after a refused large head, the connection has
// only its small buffer.
func TestLingeringCloseForgetsTheHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t, &upstream{})
		o.MaxHead = 128 << 10
		s, ln := New(o), newHandoff()
		done := make(chan error, 1)
		go func() { done <- s.Serve(ln) }()
		c, theirs := net.Pipe()
		ln.deliver(ending{theirs}, nil)
		go func() {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: nobody.hooks.test\r\nX: "+strings.Repeat("x", o.MaxHead))
		}()
		if resp, _ := readAnswer(t, bufio.NewReader(c), "GET"); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("got %d", resp.StatusCode)
		}
		synctest.Wait()
		for held := range s.conns {
			if len(held.buf) > len(held.smallBuf) {
				t.Errorf("it holds %d bytes while it lingers", len(held.buf))
			}
		}
		_ = c.Close()
		stop(t, s, done)
	})
}

// goroutinesIn counts the goroutines whose stack contains a line that begins with fn.
func goroutinesIn(fn string) int {
	stacks := make([]byte, 8<<20)
	n := 0
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "\n"+fn) {
			n++
		}
	}
	return n
}
