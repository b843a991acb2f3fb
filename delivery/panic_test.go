package delivery_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/budget"
)

// panickingCaller panics at the first byte of a response.
type panickingCaller struct{ *memCaller }

func (panickingCaller) Write([]byte) (int, error) { panic("a bug") }

// TestPanicMarksTheAttempt: a request whose exchange panics has an interrupted attempt and no open channel,
// and the next request is answered.
func TestPanicMarksTheAttempt(t *testing.T) {
	requests := 0
	run(t, func(l *local) {
		l.until("hello")
		if requests++; requests > 1 {
			l.Write(ok)
			return
		}
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe first part")
		l.ended()
	}, func(b *fixture) {
		in, c := b.inbound(post)
		in.Caller = panickingCaller{c}
		b.wantPanic(in, c)
		b.s.wg.Wait()
		b.want("running channels", b.d.Stats().Channels, 0)
		b.wantInternal(b.event().Attempts[0])
		b.want("event", b.event().State, relay.StateInterrupted)
		_, next := b.send(post)
		b.want("the next answer", next.answer(), ok)
	}, logged)
}

// logged gives a fixture a log.
func logged(b *fixture) {
	b.log = &bytes.Buffer{}
	b.opt.Log = slog.New(slog.NewTextHandler(b.log, nil))
}

// wantPanic runs a request whose exchange panics. It fails the test unless the connection of the caller is
// reset, and the log has the panic once, with its stack.
func (b *fixture) wantPanic(in *relay.Inbound, c *memCaller) {
	b.t.Helper()
	out := b.d.Capture(context.Background(), in)
	b.want("answer", out.Answer == nil && !out.KeepAlive, true)
	b.want("the caller's connection is reset", c.wasAborted(), true)
	if got := b.log.String(); strings.Count(got, "a bug") != 1 || !strings.Contains(got, "panic_test.go") {
		b.t.Errorf("not one log line with the stack: %s", got)
	}
}

func (b *fixture) wantInternal(a relay.Attempt) {
	b.t.Helper()
	b.want("attempt", a.State, relay.StateInterrupted)
	if a.Error == nil || a.Error.Code != relay.CodeInternal {
		b.t.Errorf("error %+v", a.Error)
	}
}

// unreadableCaller panics in the read after its buffered bytes.
type unreadableCaller struct{ *memCaller }

func (c unreadableCaller) Read(p []byte) (int, error) {
	if c.Buffered() == 0 {
		panic("a bug")
	}
	return c.memCaller.Read(p)
}

const cutPost = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello"

func TestPanicOfTheUpload(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		if !contains(l.got, "Content-Length: 10") {
			l.Write(ok)
		}
		l.ended()
	}, func(b *fixture) {
		other, done := b.begin(cutPost)
		time.Sleep(time.Second)
		in, c := b.inbound(cutPost)
		in.Caller = unreadableCaller{c}
		b.wantPanic(in, c)
		e := b.event()
		b.wantInternal(e.Attempts[0])
		b.want("body", words(e.Request.Body.State, e.Request.Body.Size), "aborted 5")
		b.want("channels", b.d.Stats().Channels, 1)
		other.in.finish(context.Canceled)
		<-done
		_, next := b.send(post)
		b.want("the next answer", next.answer(), ok)
	}, logged)
}

// TestPanicOfARequestThatIsToBeQueued: if reading a request that will be queued panics, the panic leaves
// Capture, no event is stored, and the space in the queue is free.
func TestPanicOfARequestThatIsToBeQueued(t *testing.T) {
	run(t, nil, func(b *fixture) {
		in, c := b.inbound(cutPost)
		in.Caller = unreadableCaller{c}
		func() {
			defer func() { b.want("panic", recover(), "a bug") }()
			b.d.Capture(context.Background(), in)
		}()
		b.want("events", b.s.only() == nil, true)
		out, _ := b.send(post)
		b.want("its room in the queue is free", code(out), "202")
	}, func(b *fixture) { b.opt.QueueLimit = 1 })
}

func TestPanicOfAnUpgradedConnection(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write(switching)
		l.ended()
	}, func(b *fixture) {
		in, c := b.inbound("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		in.Caller = unreadableCaller{c}
		b.wantPanic(in, c)
		b.want("answer", c.answer(), switching)
		b.want("channels", b.d.Stats().Channels, 0)
		b.want("attempt", b.event().Attempts[0].ResponseState, relay.ResponseUpgraded)
	}, logged)
}

// panickingTunnel counts the writes to all its channels, and panics in write number at.
type panickingTunnel struct {
	*memTunnel
	at, writes atomic.Int32
}

type panickingChannel struct {
	relay.Conn
	t *panickingTunnel
}

func (t *panickingTunnel) Open(ctx context.Context, from netip.AddrPort) (relay.Conn, error) {
	ch, err := t.memTunnel.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	return panickingChannel{ch, t}, nil
}

func (c panickingChannel) Write(p []byte) (int, error) {
	if c.t.writes.Add(1) == c.t.at.Load() {
		panic("a bug")
	}
	return c.Conn.Write(p)
}

// runPanicking runs f with a panickingTunnel, which f attaches. It fails the test unless the log has the
// panic once, with its stack.
func runPanicking(t *testing.T, at int32, serve func(*local), f func(b *fixture, attach func()), prepare ...func(b *fixture)) {
	t.Helper()
	var log bytes.Buffer
	prepare = append(prepare, func(b *fixture) { b.opt.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	run(t, nil, func(b *fixture) {
		tun := &panickingTunnel{memTunnel: &memTunnel{serve: serve}}
		tun.at.Store(at)
		f(b, func() { b.hold = b.d.Attach(b.a, tun) })
		b.want("channels", b.d.Stats().Channels, 0)
		b.hold.Detach(true)
		tun.cutAll()
		tun.wg.Wait()
		if got := log.String(); strings.Count(got, "a bug") != 1 || !strings.Contains(got, "panic_test.go") {
			t.Errorf("not one log line with the stack: %s", got)
		}
	}, prepare...)
}

// TestPanicOfAReplay: a replay that panics, in its own goroutine or in that of its upload, becomes
// interrupted, and the next replay is delivered.
func TestPanicOfAReplay(t *testing.T) {
	const size = 100 << 10
	raw := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
	for name, at := range map[string]int32{"exchange": 1, "upload": 2} {
		t.Run(name, func(t *testing.T) {
			runPanicking(t, at, func(l *local) {
				if l.n(len(raw)) {
					l.Write(ok)
				}
				l.ended()
			}, func(b *fixture, attach func()) {
				b.send(raw)
				attach()
				for i, want := range []string{relay.StateInterrupted, relay.StateDelivered} {
					e, n, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
					b.want("error", err, nil)
					b.want("replay", e.Attempt(n).State, want)
					if i == 0 {
						b.wantInternal(*e.Attempt(n))
					}
				}
			}, func(b *fixture) { b.a.Settings.FreshConnections = true })
		})
	}
}

// TestPanicOfAQueuedDelivery: a queued delivery that panics becomes interrupted, and the next one is
// delivered after a backoff.
func TestPanicOfAQueuedDelivery(t *testing.T) {
	runPanicking(t, 1, always("hello", ok), func(b *fixture, attach func()) {
		b.send(post)
		time.Sleep(time.Millisecond)
		b.send(post)
		attach()
		// The dispatcher also starts when the tunnel is stored, so the test lets that happen first.
		time.Sleep(time.Second)
		b.s.change(7, func(s *relay.Settings) { s.AutoDeliver = true })
		time.Sleep(500 * time.Millisecond)
		b.want("at once", b.s.states(), "interrupted queued")
		time.Sleep(time.Second)
		b.want("after a backoff", b.s.states(), "interrupted delivered")
		e, err := b.s.Event(context.Background(), relay.System(), b.s.order[0], 0)
		b.want("error", err, nil)
		b.wantInternal(e.Attempts[0])
	}, func(b *fixture) { b.a.Settings.FreshConnections = true })
}

// TestPanicBesideAnUpload: if an exchange panics while the rest of its request arrives, nothing stays
// reserved in the budget, and the request body is recorded as aborted.
func TestPanicBesideAnUpload(t *testing.T) {
	budget := budget.New(0)
	run(t, func(l *local) {
		l.until("xxx")
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe first part")
		l.ended()
	}, func(b *fixture) {
		in, c := b.inbound("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 60000))
		in.Caller = panickingCaller{c}
		b.wantPanic(in, c)
		b.s.wg.Wait()
		b.want("reserved", budget.Stats().Used, 0)
		e := b.event()
		b.wantInternal(e.Attempts[0])
		b.want("body", e.Request.Body.State, relay.BodyAborted)
	}, logged, func(b *fixture) { b.opt.Budget = budget })
}

// TestPanicLeavesNothingReserved: an exchange that panics while its response waits for the store leaves
// nothing reserved in the budget.
func TestPanicLeavesNothingReserved(t *testing.T) {
	budget := budget.New(0)
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 60000))
		l.ended()
	}, func(b *fixture) {
		in, c := b.inbound(post)
		in.Caller = panickingCaller{c}
		b.wantPanic(in, c)
		b.s.wg.Wait()
		b.want("reserved", budget.Stats().Used, 0)
	}, logged, func(b *fixture) { b.opt.Budget, b.s.delay = budget, time.Second })
}
