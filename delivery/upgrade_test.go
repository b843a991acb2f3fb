package delivery_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

const (
	upgrading = "POST / HTTP/1.1\r\nHost: h\r\nUpgrade: echo\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\n"
	switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
)

func TestUpgrade(t *testing.T) {
	const head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write(head + "early")
		l.until("ping")
		l.Write("pong")
		l.ended()
		l.Write("bye")
	}, func(b *fixture) {
		c, done := b.begin("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		time.Sleep(time.Second)
		b.want("state at the 101", b.event().State, relay.StateDelivered)
		b.want("head", c.answer(), head+"early")
		c.in.write([]byte("ping"))
		time.Sleep(10 * time.Minute)
		b.want("pong", strings.HasSuffix(c.answer(), "pong"), true)
		c.in.finish(io.EOF)
		out := <-done
		b.want("bye", strings.HasSuffix(c.answer(), "pongbye"), true)
		b.want("half closed", c.halved, true)
		b.want("aborted", c.wasAborted(), false)
		b.want("keep-alive", out.KeepAlive, false)
		b.want("response state", b.event().Attempts[0].ResponseState, relay.ResponseUpgraded)
	})
}

func TestUpgradeAndTunnelLost(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		l.ended()
	}, func(b *fixture) {
		c, done := b.begin("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		time.Sleep(time.Second)
		b.hold.Detach(false)
		<-done
		b.want("aborted", c.wasAborted(), true)
	})
}

// TestUpgradeBeforeTheRequestIsWhole: if the local server switches protocols before the request is complete,
// the rest of the body is recorded, and the bytes after it are passed to the local server.
func TestUpgradeBeforeTheRequestIsWhole(t *testing.T) {
	run(t, func(l *local) {
		l.until("\r\n\r\n")
		l.Write(switching)
		l.until("helloping")
		l.Write("pong")
		l.ended()
	}, func(b *fixture) {
		c, done := b.begin(upgrading + "he")
		time.Sleep(time.Second)
		b.want("head", c.answer(), switching)
		c.in.write([]byte("lloping"))
		time.Sleep(time.Second)
		b.want("pong", c.answer(), switching+"pong")
		e := b.event()
		b.want("body", words(e.Request.Body.State, string(e.Request.Body.Data)), "complete hello")
		c.in.finish(io.EOF)
		<-done
		b.want("aborted", c.wasAborted(), false)
		b.want("response state", b.event().Attempts[0].ResponseState, relay.ResponseUpgraded)
	})
}

func TestUpgradeAndCallerGoneInsideItsRequest(t *testing.T) {
	var got string
	run(t, func(l *local) {
		if l.until("\r\n\r\n"); !contains(l.got, "Upgrade") {
			l.until("hello")
			l.Write(ok)
			return
		}
		l.Write(switching)
		l.ended()
		got = string(l.got)
	}, func(b *fixture) {
		c, done := b.begin(upgrading + "he")
		time.Sleep(time.Second)
		c.in.finish(io.EOF)
		<-done
		b.want("aborted", c.wasAborted(), true)
		b.want("body", b.event().Request.Body.State, relay.BodyAborted)
		b.tun.wg.Wait()
		b.want("sent", strings.HasSuffix(got, "\r\n\r\nhe"), true)
		for range 3 {
			_, c := b.send(post)
			b.want("the next ones", c.answer(), ok)
		}
	})
}

// TestUpgradeWithCallerThatDoesNotRead: an upgraded connection whose caller does not read ends within 5 s
// when its tunnel is lost or the relay stops.
func TestUpgradeWithCallerThatDoesNotRead(t *testing.T) {
	for name, end := range map[string]func(*fixture){
		"tunnel lost": func(b *fixture) { b.hold.Detach(false); b.tun.cutAll() },
		"relay stops": func(b *fixture) {
			ctx, cancel := timeout(time.Second)
			defer cancel()
			_ = b.d.Close(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(l *local) {
				l.until("\r\n\r\n")
				l.Write(switching)
				for l.Write(strings.Repeat("x", 32<<10)) {
					time.Sleep(time.Second)
				}
			}, func(b *fixture) {
				in, c := b.inbound("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
				c.out.window = 100 << 10
				done := make(chan relay.Outcome, 1)
				go func() { done <- b.d.Capture(context.Background(), in) }()
				time.Sleep(10 * time.Second)
				go end(b)
				time.Sleep(5 * time.Second)
				b.want("aborted", c.wasAborted(), true)
				b.want("ended", len(done), 1)
				c.Abort()
				<-done
			})
		})
	}
}

// TestTooManyUpgradedConnections: an account may have 1,000 upgraded connections. One more is refused as
// overloaded before a byte is sent; other requests are sent, and a place is free when a connection ends.
func TestTooManyUpgradedConnections(t *testing.T) {
	const most = 1000
	run(t, func(l *local) { l.until("\r\n\r\n"); l.Write(switching); l.ended() }, func(b *fixture) {
		raw := strings.Replace(get, "\r\n\r\n", "\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n", 1)
		var first *memCaller
		var all []<-chan relay.Outcome
		for range most {
			c, done := b.begin(raw)
			synctest.Wait()
			if first == nil {
				first = c
			}
			all = append(all, done)
		}
		_, more := b.begin(raw)
		synctest.Wait()
		select {
		case out := <-more:
			b.want("one more", code(out), relay.CodeOverloaded)
		default:
			t.Error("one more is upgraded")
			all = append(all, more)
		}
		b.want("sent", b.tun.count(), most)
		out, c := b.send(strings.Replace(get, "Host", "Connection: close\r\nHost", 1))
		b.want("another request", words(code(out), strings.HasPrefix(c.answer(), "HTTP/1.1 101")), words(relay.CodeLocalMalformed, false))
		first.in.finish(io.EOF)
		<-all[0]
		c, done := b.begin(raw)
		synctest.Wait()
		b.want("after one has ended", c.answer(), switching)
		b.hold.Detach(false)
		for _, d := range append(all[1:], done) {
			<-d
		}
	})
}
