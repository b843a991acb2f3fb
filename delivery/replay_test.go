package delivery_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"relay"
)

func TestReplay(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.send(post)
		id := b.event().ID
		e, n, err := b.d.Replay(context.Background(), relay.System(), id, time.Minute)
		b.want("error", err, nil)
		a := *e.Attempt(n)
		b.want("attempt", words(a.N, a.State, *a.Identical), "2 delivered true")
		b.want("origin", b.tun.origins[0], "203.0.113.9:5201")
		b.want("event unchanged", string(e.Request.Head)+"hello", post)
	})
}

func TestReplayOutlivesWho(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		time.Sleep(5 * time.Second)
		l.Write(ok)
	}, func(b *fixture) {
		b.send(post)
		id := b.event().ID
		e, n, err := b.d.Replay(context.Background(), relay.System(), id, time.Second)
		b.want("still running", words(e.Attempt(n).State, err), "delivering <nil>")
		ctx, cancel := timeout(time.Second)
		defer cancel()
		e, n, err = b.d.Replay(ctx, relay.System(), id, time.Minute)
		b.want("gone on", words(n, e.Attempt(n).State, err), "3 delivering <nil>")
		time.Sleep(10 * time.Second)
		b.want("both", b.event().Attempts[1].State+b.event().Attempts[2].State, "delivereddelivered")
	})
}

// TestBegunIsToldWithoutTheStore: if the event cannot be read after its attempt was begun, Replay and Send
// return the attempt without an error and without bodies.
func TestBegunIsToldWithoutTheStore(t *testing.T) {
	away := &relay.Error{Code: relay.CodeStoreUnavailable}
	left, leave := context.WithCancel(context.Background())
	leave()
	replay := func(b *fixture) (*relay.Event, int, error) {
		return b.d.Replay(context.Background(), relay.System(), b.s.order[0], time.Minute)
	}
	for name, c := range map[string]struct {
		offline bool
		begin   func(b *fixture) (*relay.Event, int, error)
		want    string
	}{
		"replay":          {false, replay, "2 replay delivering"},
		"replay, offline": {true, replay, "2 replay queued"},
		"replay, the event removed": {false, func(b *fixture) (*relay.Event, int, error) {
			b.s.fail("event once begun", relay.ErrNotFound)
			return replay(b)
		}, "2 replay delivering"},
		"send": {false, func(b *fixture) (*relay.Event, int, error) {
			b.s.fail("event", away)
			e, err := b.sendNew(post)
			return e, 1, err
		}, "1 original delivering"},
		"send, the caller left": {false, func(b *fixture) (*relay.Event, int, error) {
			b.s.fail("event", away)
			e, err := b.d.Send(left, relay.System(), b.outgoing(post), time.Minute)
			return e, 1, err
		}, "1 original delivering"},
	} {
		run(t, always("hello", ok), func(b *fixture) {
			b.send(post)
			b.s.change(7, func(s *relay.Settings) { s.Paused = c.offline })
			b.s.fail("event once begun", away)
			e, n, err := c.begin(b)
			if err != nil {
				b.t.Fatalf("%s: %v", name, err)
			}
			a := e.Attempt(n)
			b.want(name, words(n, a.Kind, a.State), c.want)
			b.want(name+": bytes of the body", len(e.Request.Body.Data), 0)
		})
	}
}

func TestReplayThatCannotBeSentIsQueued(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.send(post)
		id := b.event().ID
		b.tun.set(func() { b.tun.heard, b.tun.hang = time.Minute, true })
		e, n, err := b.d.Replay(context.Background(), relay.System(), id, time.Minute)
		b.want("queued", words(e.Attempt(n).State, err), "queued <nil>")
		b.tun.set(func() { b.tun.heard, b.tun.hang = 0, false })
		time.Sleep(time.Second)
		b.want("delivered when it is back", b.event().Attempts[1].State, relay.StateDelivered)
	})
}

// TestNothingIsSentWithoutALease: while MayClaim fails, a replay is queued, and no request is sent.
func TestNothingIsSentWithoutALease(t *testing.T) {
	var sent atomic.Int64
	serve := func(l *local) {
		for l.until("hello") {
			l.got = nil
			sent.Add(1)
			l.Write(ok)
		}
	}
	run(t, serve, func(b *fixture) {
		b.send(post)
		b.s.mu.Lock()
		for _, call := range []string{"MayClaim", "Next"} {
			b.s.failing[call] = &relay.Error{Code: relay.CodeStoreUnavailable}
		}
		b.s.mu.Unlock()
		e, n, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
		b.want("queued", words(e.Attempt(n).State, err), "queued <nil>")
		b.want("requests sent", sent.Load(), int64(1))
	})
}

func TestReplayTimesOut(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for l.Write("1\r\nx\r\n") {
			time.Sleep(time.Second)
		}
	}, func(b *fixture) {
		b.send2202(post)
		e, n, _ := b.d.Replay(context.Background(), relay.System(), b.event().ID, 2*time.Minute)
		b.want("state", e.Attempt(n).State, relay.StateDelivered)
		b.want("response state", e.Attempt(n).ResponseState, relay.ResponseCut)
	})
}

// send2202 sends a request while the alias is paused, so that it is queued with a 202.
func (b *fixture) send2202(raw string) {
	b.s.change(7, func(s *relay.Settings) { s.Paused = true })
	b.send(raw)
	b.s.change(7, func(s *relay.Settings) { s.Paused = false })
}

const expecting = "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"

func TestReplayWithExpect(t *testing.T) {
	for name, serve := range map[string]func(*local){
		"continue": func(l *local) {
			l.until("\r\n\r\n")
			time.Sleep(500 * time.Millisecond)
			if contains(l.got, "hello") {
				l.Write("HTTP/1.1 500 too early\r\nContent-Length: 0\r\n\r\n")
				return
			}
			l.Write("HTTP/1.1 100 Continue\r\n\r\n")
			l.until("hello")
			l.Write(ok)
		},
		"silence": func(l *local) {
			start := time.Now()
			l.until("hello")
			if time.Since(start) == time.Second {
				l.Write(ok)
			}
		},
		"refusal": func(l *local) {
			l.until("\r\n\r\n")
			l.Write("HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
			l.ended()
			if contains(l.got, "hello") {
				panic("the body was sent")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, serve, func(b *fixture) {
				b.send2202(expecting)
				e, n, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
				b.want("error", err, nil)
				a := *e.Attempt(n)
				b.want("state", a.State, relay.StateDelivered)
				if name == "refusal" {
					b.want("status", words(a.Status, *a.Identical), "417 false")
				} else {
					b.want("status", words(a.Status, *a.Identical), "200 true")
				}
			})
		})
	}
}

func TestReplayRefusedFails(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		b.send2202(post)
		b.tun.set(func() { b.tun.openErr = relay.Errorf(relay.CodeLocalRefused, "refused") })
		e, n, _ := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
		b.want("state", e.Attempt(n).State, relay.StateFailed)
		b.want("error", e.Attempt(n).Error.Code, relay.CodeLocalRefused)
	})
}

func TestQueuedDeliveryThatIsUpgraded(t *testing.T) {
	run(t, nil, func(b *fixture) {
		b.send("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		b.want("state", b.event().State, relay.StateQueued)
		closed := make(chan struct{})
		b.attach(func(l *local) {
			l.until("\r\n\r\n")
			l.Write(switching + "more")
			l.ended()
			close(closed)
		})
		select {
		case <-closed:
		case <-time.After(time.Second):
			t.Error("the connection is not closed")
		}
		time.Sleep(time.Second)
		a := b.event().Attempts[0]
		b.want("attempt", words(a.State, a.Status, a.ResponseState), "delivered 101 upgraded")
	}, func(b *fixture) { b.a.Settings.AutoDeliver = true })
}

func TestReplayThatIsUpgraded(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		l.ended()
	}, func(b *fixture) {
		b.send2202("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		e, n, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
		b.want("error", err, nil)
		a := *e.Attempt(n)
		b.want("attempt", words(a.State, a.Status, a.ResponseState), "delivered 101 upgraded")
	})
}
