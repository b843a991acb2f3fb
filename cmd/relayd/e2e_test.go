package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"relay/record"
	"relay/relaytest"
)

// odd is a request that an HTTP library would normalise: letter case, order, spacing, duplicates,
// bytes that are not UTF-8.
const odd = "POST /a//b/../c?x=1&&y=%zz HTTP/1.1\r\n" +
	"hOST:   demo.localhost\r\nX-Dup: 1\r\nx-dup:2\r\nX-Bin: caf\xe9\r\nStripe-Signature: t=1,v1=ab\r\n" +
	"Connection: close\r\nContent-Length: 9\r\n\r\n{\"hi\":1}\n"

const oddAnswer = "HTTP/1.1 201 Well  Done\r\nx-lower: Yes\r\nContent-Length: 5\r\nX-Lower: no\r\nSet-Cookie: a=b\r\n\r\nhello"

// TestLoop does the main task on both stores: a request through ssh -R is answered unchanged, is stored,
// survives a restart, and is replayed byte for byte.
func TestLoop(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, flags map[string]string) {
		h := newTestServer(t, flags)
		l := newLocal(t, oddAnswer)
		tn := h.tunnel("demo", l.addr)

		if got := h.send(odd); got != oddAnswer {
			t.Errorf("answer\n got %q\nwant %q", got, oddAnswer)
		}
		if got := l.seen(t, 1)[0]; got != odd {
			t.Errorf("local server\n got %q\nwant %q", got, odd)
		}
		e := h.newest("demo")
		if e.State != "delivered" || e.Status == nil || *e.Status != 201 || e.Path != "/a//b/../c?x=1&&y=%zz" {
			t.Errorf("event %+v", e)
		}
		var raw []byte
		if h.api(http.MethodGet, "/events/"+e.ID+"/request.raw", "", &raw); string(raw) != odd {
			t.Errorf("stored\n got %q\nwant %q", raw, odd)
		}

		h.replays(e, 2)
		if got := l.seen(t, 2)[1]; got != odd {
			t.Errorf("replay\n got %q\nwant %q", got, odd)
		}

		// The replay is the same after a restart, with a new tunnel.
		tn.close()
		if err := h.app.stopOnce(); err != nil {
			t.Fatal(err)
		}
		h.open()
		h.tunnel("demo", l.addr)
		h.replays(e, 3)
		if got := l.seen(t, 3)[2]; got != odd {
			t.Errorf("replay after a restart\n got %q\nwant %q", got, odd)
		}
	})
}

// replays replays an event and checks that the new attempt has the number n and sent the same bytes. The
// argument before is the record of the event before the replay.
func (h *testServer) replays(before record.Summary, n int) {
	h.t.Helper()
	var e record.Event
	if status := h.api(http.MethodPost, "/events/"+before.ID+"/replay", "", &e); status != http.StatusOK {
		h.t.Fatalf("replay answered %d", status)
	}
	a := e.Attempts[len(e.Attempts)-1]
	if a.Number != n || a.State != "delivered" || a.Kind != "replay" || a.Identical == nil || !*a.Identical {
		h.t.Errorf("attempt %+v", a)
	}
	if !e.ReceivedAt.After(before.ReceivedAt.Time) {
		h.t.Errorf("receivedAt %v is not after %v", e.ReceivedAt, before.ReceivedAt)
	}
}

// TestOffline: a request while offline is stored and answered 202. A queued event is delivered only on
// request, but a queued replay is delivered at the reconnect.
func TestOffline(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, flags map[string]string) {
		h := newTestServer(t, flags)
		l := newLocal(t, oddAnswer)
		h.tunnel("demo", l.addr).close()
		if !relaytest.Poll(15*time.Second, func() bool { return !h.alias("demo").Online }) {
			t.Fatal("still online")
		}
		answer := h.send(odd)
		if !strings.HasPrefix(answer, "HTTP/1.1 202 ") || !strings.Contains(answer, `"state":"queued"`) {
			t.Fatalf("offline answer %q", answer)
		}
		h.send(odd)
		if a := h.alias("demo"); a.QueuedEvents != 2 {
			t.Errorf("queuedEvents %d, want 2", a.QueuedEvents)
		}

		// A restart and a new tunnel do not deliver the queued originals.
		if err := h.app.stopOnce(); err != nil {
			t.Fatal(err)
		}
		h.open()
		second := h.newest("demo")
		if status := h.api(http.MethodPost, "/events/"+second.ID+"/replay", "", nil); status != http.StatusAccepted {
			t.Errorf("replay while offline answered %d, want 202", status)
		}
		h.tunnel("demo", l.addr)
		l.seen(t, 1) // only the replay is delivered
		if !relaytest.Poll(10*time.Second, func() bool { return h.newest("demo").State == "delivered" }) {
			t.Fatal("the replay never ended")
		}
		var released record.Released
		h.api(http.MethodPost, "/aliases/demo/replay-queued", "", &released)
		if released.Released != 1 {
			t.Errorf("released %d, want 1", released.Released)
		}
		for i, got := range l.seen(t, 2) {
			if got != odd {
				t.Errorf("delivery %d: %q", i, got)
			}
		}
	})
}

// TestDrain: a request in progress finishes within the drain time, or is cut and stored as interrupted. In
// the second case, Stop returns an error.
func TestDrain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, drain, want string
		finish            bool
	}{
		{"finishes", "20s", "delivered", true},
		{"cut", "100ms", "interrupted", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newTestServer(t, map[string]string{"drain": tc.drain})
			l := newLocal(t, oddAnswer)
			l.gate = make(chan struct{})
			h.tunnel("demo", l.addr)
			answer := make(chan string, 1)
			go func() { answer <- h.trySend(odd) }()
			l.seen(t, 1)

			stopped := make(chan error, 1)
			go func() { stopped <- h.app.stopOnce() }()
			if tc.finish {
				relaytest.Poll(10*time.Second, func() bool { return strings.Contains(h.log.String(), "msg=stopping") })
				close(l.gate)
			} else {
				defer close(l.gate)
			}
			err, got := <-stopped, <-answer
			if tc.finish != (err == nil) || tc.finish != (got == oddAnswer) {
				t.Errorf("stopped with %v, the caller got %q", err, got)
			}
			h.open()
			if e := h.newest("demo"); e.State != tc.want {
				t.Errorf("the event is %s, want %s", e.State, tc.want)
			}
		})
	}
}

// TestDripEndsWithTimeout: a body that still arrives more slowly than --min-rate after the time
// --min-rate-grace is refused with 408. The local server never gets the complete body, and the event cannot
// be replayed.
func TestDripEndsWithTimeout(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, map[string]string{"min-rate-grace": "1s"})
	l := newLocal(t, oddAnswer)
	h.tunnel("demo", l.addr)
	conn, err := net.Dial("tcp", h.app.cfg.HTTPAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	begun := time.Now()
	_, _ = io.WriteString(conn, "POST /drip HTTP/1.1\r\nHost: demo.localhost\r\nContent-Length: 1000\r\n\r\n")
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				_, _ = conn.Write([]byte("x"))
			}
		}
	}()
	answer, _ := io.ReadAll(conn)
	if took := time.Since(begun); !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") || took < time.Second || took > 20*time.Second {
		t.Errorf("after %v: %q", took, answer)
	}
	if e := h.newest("demo"); e.State != "incomplete" || e.Replayable {
		t.Errorf("event %+v", e)
	}
	l.seen(t, 0)
}
