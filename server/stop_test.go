package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"relay"
)

// blocking returns an upstream whose requests to /slow wait for release or for the end of their context. Each
// such request sends to begun.
func blocking() (u *upstream, begun, release chan struct{}) {
	begun, release = make(chan struct{}, 10), make(chan struct{})
	u = &upstream{answer: func(ctx context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		if !strings.Contains(string(in.Head), "/slow") {
			return relay.Outcome{}, false
		}
		begun <- struct{}{}
		select {
		case <-release:
			return relay.Outcome{}, false
		case <-ctx.Done():
			in.Caller.Abort()
			return relay.Outcome{}, true
		}
	}}
	return u, begun, release
}

const slow = "GET /slow HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n"

func TestGracefulStop(t *testing.T) {
	t.Parallel()
	u, begun, release := blocking()
	ln, s := listen(t), New(testOptions(t, u))
	done, addr := make(chan error, 1), ln.Addr().String()
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() { stop(t, s, done) })
	running, idle, late, unborn := dial(t, addr), dial(t, addr), dial(t, addr), dial(t, addr)
	send(t, idle, hello)
	idleReader := bufio.NewReader(idle)
	readAnswer(t, idleReader, "POST")
	send(t, late, hello[:20])
	send(t, running, slow)
	<-begun

	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(t.Context()) }()
	if got := rest(t, idleReader); got != "" {
		t.Errorf("idle connection: got %q", got)
	}
	send(t, late, hello[20:])
	checkProblem(t, rest(t, late), 503, "stopping", "Retry-After: 5")
	checkProblem(t, say(t, addr, hello), 503, "stopping", "Retry-After: 5")
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/": 503} {
		resp, _ := parse(t, say(t, addr, "GET "+path+" HTTP/1.1\r\nHost: relay.test\r\nConnection: close\r\n\r\n"), "GET")
		if resp.StatusCode != want {
			t.Errorf("%s: got %d", path, resp.StatusCode)
		}
	}
	close(release)
	if _, body := parse(t, rest(t, running), "GET"); body != slow {
		t.Errorf("running request: got %q", body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if got := rest(t, unborn); got != "" {
		t.Errorf("unused connection: got %q", got)
	}
	// Another process may listen at the port of ln by now, so the test asks ln itself.
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("still listening: %v", err)
	}
}

// TestStopDoesNotWaitForHeads: Shutdown does not wait for an unfinished head, which gets 503 stopping.
func TestStopDoesNotWaitForHeads(t *testing.T) {
	t.Parallel()
	o := testOptions(t, &upstream{})
	o.HeadTimeout = patience
	s, addr := start(t, o)
	c := dial(t, addr)
	send(t, c, hello[:20])
	until(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			if c.phase.Load() == phaseHead {
				return true
			}
		}
		return false
	})
	begun := time.Now()
	if err := s.Shutdown(t.Context()); err != nil || time.Since(begun) > patience/2 {
		t.Errorf("shutdown: %v after %v", err, time.Since(begun))
	}
	checkProblem(t, rest(t, c), 503, "stopping", "Retry-After: 5")
}

func TestStopCutsWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	u, begun, _ := blocking()
	ln := listen(t)
	s := New(testOptions(t, u))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	c := dial(t, ln.Addr().String())
	send(t, c, slow)
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, errOverdue) {
		t.Errorf("shutdown: %v", err)
	}
	if got, err := io.ReadAll(c); !isReset(err) {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
	if err := s.Serve(listen(t)); err != nil {
		t.Errorf("serve after the stop: %v", err)
	}
}

// TestLastRequestEndsAsTheStopBegins: endRequest and beginStop at the same time close drained exactly once.
func TestLastRequestEndsAsTheStopBegins(t *testing.T) {
	t.Parallel()
	for range 20_000 {
		s := &Server{drained: make(chan struct{}), conns: map[*conn]struct{}{}, cancelReads: func() {}}
		s.beginRequest()
		ended := make(chan struct{})
		go func() {
			s.endRequest()
			close(ended)
		}()
		s.beginStop()
		<-ended
		<-s.drained
	}
}

// TestStopBreaksOffWhatDoesNotHear: a capture that ignores the end of its context makes Shutdown return
// errOverdue, and its connection is reset.
func TestStopBreaksOffWhatDoesNotHear(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	u := &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		_, _ = io.WriteString(in.Caller, "HTTP/1.1 200 OK\r\n\r\nhalf")
		close(begun)
		for b := make([]byte, 1); ; {
			if _, err := in.Caller.Read(b); err != nil {
				return relay.Outcome{}, true
			}
		}
	}}
	ln, s := listen(t), New(testOptions(t, u))
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	c := dial(t, ln.Addr().String())
	send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// A server without requests has nothing to cut, even with an ended ctx.
	for range 20 {
		idle := New(testOptions(t, &upstream{}))
		if err := idle.Shutdown(ctx); err != nil {
			t.Errorf("shutdown of an idle server: %v", err)
		}
	}
	if err := s.Shutdown(ctx); !errors.Is(err, errOverdue) {
		t.Errorf("shutdown: %v", err)
	}
	if got, err := io.ReadAll(c); !isReset(err) {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// TestStopAccepting: a connection with an unfinished head when StopAccepting begins gets its answer.
func TestStopAccepting(t *testing.T) {
	t.Parallel()
	u, _, _ := blocking()
	ln, s := listen(t), New(testOptions(t, u))
	done, addr := make(chan error, 1), ln.Addr().String()
	go func() { done <- s.Serve(ln) }()
	early := dial(t, addr)
	send(t, early, hello[:20])
	// This waits until the accept loop runs.
	for s.allAnswered() {
		runtime.Gosched()
	}
	stopped := make(chan error, 1)
	go func() {
		s.StopAccepting()
		stopped <- s.Shutdown(t.Context())
	}()
	// The listener is closed now.
	<-done
	send(t, early, hello[20:])
	if got := rest(t, bufio.NewReader(early)); !strings.HasPrefix(got, "HTTP/1.1 200 OK") {
		t.Errorf("a caller from before the handover got %q", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
