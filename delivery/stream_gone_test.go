package delivery_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"relay"
)

// TestCallerGoneInsideStream: after the caller has left, the connection to the local server ends within 2 s if
// the response is a stream, otherwise after a minute. A response of type text/event-stream is always a stream.
// Any other response without a length is one only if the caller leaves after its head.
func TestCallerGoneInsideStream(t *testing.T) {
	const minute = time.Minute
	answers := map[string]struct {
		head  string
		piece string
		early time.Duration // time from the leaving to the end if the caller leaves before the head
		late  time.Duration // time from the leaving to the end if the caller leaves inside the body
	}{
		"events, chunked":  {"HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", 0, 0},
		"events, close":    {"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "x", 0, 0},
		"events, a length": {"HTTP/1.1 200 OK\r\nContent-Type:text/event-stream\r\nContent-Length: 100000\r\n\r\n", "x", 0, 0},
		"chunked":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", minute, 0},
		"close":            {"HTTP/1.1 200 OK\r\n\r\n", "x", minute, 0},
		"length":           {"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", "x", minute, minute},
	}
	leave := map[string]func(*memCaller){
		"reset":                 func(c *memCaller) { c.become(relay.CallerReset) },
		"ended":                 func(c *memCaller) { c.become(relay.CallerHalfClosed) },
		"reset seen by a write": (*memCaller).failWrites,
		"ended, then reset by the first byte": func(c *memCaller) {
			c.become(relay.CallerHalfClosed)
			c.onWrite(func() { c.become(relay.CallerReset) })
		},
	}
	for name, a := range answers {
		for how, leave := range leave {
			for _, early := range []bool{false, true} {
				for _, every := range []time.Duration{0, time.Second} { // the time between two pieces; 0 = none comes
					if every == 0 && how == "reset seen by a write" || every != 0 && how == "ended" {
						// Without pieces no write sees the reset. A half-closed caller still gets each piece.
						continue
					}
					limit := a.late
					if early && how != "reset seen by a write" {
						// A reset that only a write can notice is noticed after the head, so the limit for it is a.late.
						limit = a.early
					}
					name := name + "/" + how
					if early {
						name += "/before the head"
					}
					t.Run(name, func(t *testing.T) {
						var ended chan time.Time
						run(t, func(l *local) {
							l.until("hello")
							if early {
								time.Sleep(3 * time.Second)
							}
							l.Write(a.head)
							l.Write(a.piece)
							for i := 0; every > 0 && i < 3000 && l.Write(a.piece); i++ {
								time.Sleep(every)
							}
							l.ended()
							ended <- time.Now()
						}, func(b *fixture) {
							ended = make(chan time.Time, 1)
							c, done := b.begin(post)
							time.Sleep(1500 * time.Millisecond)
							left := time.Now()
							leave(c)
							<-done
							took := (<-ended).Sub(left)
							if early {
								took -= 1500 * time.Millisecond
							}
							if took < limit || took > limit+2*time.Second+10*time.Millisecond {
								t.Errorf("the local server saw the end after %v, want %v", took, limit)
							}
							at := b.event().Attempts[0]
							b.want("state", words(at.State, at.ResponseState), words(relay.StateDelivered, relay.ResponseCut))
						})
					})
				}
			}
		}
	}
}

// TestEndOfAStreamAfterItsReader: a stream whose caller has left is recorded as complete if it ends within a
// moment, even while the exchange waits for the store. If it ends a second later, it is recorded as cut.
func TestEndOfAStreamAfterItsReader(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n\r\n"
	for name, c := range map[string]struct {
		size  int           // bytes of the body
		end   time.Duration // time from the last byte of the body to the end of the connection
		store time.Duration
		want  string
	}{
		"at once":           {11, 0, 0, relay.ResponseComplete},
		"a moment later":    {11, 50 * time.Millisecond, 0, relay.ResponseComplete},
		"behind the store":  {3*relay.BodyPart + 11, 0, time.Second, relay.ResponseComplete},
		"after a long time": {11, time.Second, 0, relay.ResponseCut},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) {
				l.until("hello")
				l.Write(head)
				// The event is stored within this time.
				time.Sleep(3 * time.Second)
				l.Write(strings.Repeat("x", c.size))
				time.Sleep(c.end)
			}, func(b *fixture) {
				in, caller := b.inbound(post)
				// Every write after the head fails.
				caller.onWrite(caller.failWrites)
				b.d.Capture(context.Background(), in)
				a := b.event().Attempts[0]
				b.want("response", words(a.State, a.ResponseState), words(relay.StateDelivered, c.want))
			}, func(b *fixture) { b.s.delay = c.store })
		})
	}
}

// TestHalfClosedReaderOfAStream: a stream of 30 s is recorded as complete, although its caller has closed its
// sending side.
func TestHalfClosedReaderOfAStream(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range 60 {
			time.Sleep(500 * time.Millisecond)
			l.Write("1\r\nx\r\n")
		}
		l.Write("0\r\n\r\n")
	}, func(b *fixture) {
		c, done := b.begin(post)
		time.Sleep(100 * time.Millisecond)
		c.become(relay.CallerHalfClosed)
		<-done
		b.want("response state", b.event().Attempts[0].ResponseState, relay.ResponseComplete)
	})
}

// TestStreamOfAReplay: a response to a replay that ends after 30 s, within the response timeout, is recorded
// as complete.
func TestStreamOfAReplay(t *testing.T) {
	run(t, func(l *local) {
		l.until("hello")
		l.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
		time.Sleep(30 * time.Second)
		l.Write("0\r\n\r\n")
	}, func(b *fixture) {
		b.send(post)
		e, n, err := b.d.Replay(context.Background(), relay.System(), b.event().ID, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		b.want("response state", e.Attempt(n).ResponseState, relay.ResponseComplete)
	})
}
