package link

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestFirstCauseCounts: of several concurrent calls of Close, one ends the connection, and its cause is recorded when
// any of them has returned. The later ones change nothing.
func TestFirstCauseCounts(t *testing.T) {
	t.Parallel()
	ends := make(chan struct{}, 100)
	own, _ := pair(t, Options{Closed: func() { ends <- struct{}{} }})
	var wg sync.WaitGroup
	causes := make(chan Cause, 100)
	for range cap(causes) / 2 {
		for _, cause := range []Cause{Idle, Stopped} {
			wg.Go(func() {
				own.Close(cause)
				causes <- own.Cause()
			})
		}
	}
	wg.Wait()
	<-own.Done()
	first := <-causes
	for len(causes) > 0 {
		if cause := <-causes; cause != first {
			t.Fatalf("%q and %q", first, cause)
		}
	}
	if len(ends) != 1 || first == "" {
		t.Errorf("ended %d times, by %q", len(ends), first)
	}
}

// TestLineFailed: a read that fails, and does not end with EOF, is the cause LineFailed.
func TestLineFailed(t *testing.T) {
	t.Parallel()
	own, _ := pair(t, Options{})
	_ = own.Sock.Conn.SetReadDeadline(time.Unix(1, 0))
	within(t, "the connection", func() { <-own.Done() })
	if cause := own.Cause(); cause != LineFailed {
		t.Errorf("ended by %q", cause)
	}
}

// TestEndIsLogged: one log line has the cause and the details of the end of a connection that has logged in.
func TestEndIsLogged(t *testing.T) {
	t.Parallel()
	for cause, want := range map[Cause]string{
		Flooded: "level=WARN msg=\"ssh connection ended\" cause=flooded unanswered=requests\n",
		Idle:    "level=DEBUG msg=\"ssh connection ended\" cause=idle unanswered=requests\n",
		Silent:  "level=INFO msg=\"ssh connection ended\" cause=silent unanswered=requests\n",
		Evicted: "",
	} {
		var log bytes.Buffer
		own, _ := pair(t, Options{})
		own.Sock.loggedIn.Store(cause != Evicted)
		own.SetLog(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		own.Close(cause, "unanswered", "requests")
		own.Close(Flooded)
		<-own.Done()
		if _, line, _ := strings.Cut(log.String(), " "); line != want {
			t.Errorf("%s: %s", cause, line)
		}
	}
}
