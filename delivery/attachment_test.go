package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

func TestTunnelLostAfterAByte(t *testing.T) {
	for _, how := range []string{"stale", "detach", "detach a moment after the end"} {
		t.Run(how, func(t *testing.T) {
			run(t, func(l *local) { l.until("hello"); l.ended() }, func(b *fixture) {
				_, done := b.begin(post)
				time.Sleep(time.Second)
				switch how {
				case "stale":
					b.hold.Stale()
				case "detach":
					b.hold.Detach(false)
				default:
					b.tun.cutAll()
					time.Sleep(20 * time.Millisecond)
					b.hold.Detach(false)
				}
				out := <-done
				b.want("code", code(out), relay.CodeTunnelLost)
				e := b.event()
				b.want("state", e.State, relay.StateInterrupted)
				b.want("body", string(e.Request.Body.Data), "hello")
				if how == "stale" {
					out, _ := b.send(post)
					b.want("while stale", code(out), "202")
					b.hold.Online()
					_, done := b.begin(post)
					time.Sleep(time.Second)
					b.want("opened", b.tun.count(), 2)
					b.hold.Detach(false)
					<-done
				}
			})
		})
	}
}

func TestTunnelLostWithBodyUnderWay(t *testing.T) {
	run(t, func(l *local) { l.ended() }, func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello")
		time.Sleep(time.Second)
		b.hold.Detach(false)
		time.Sleep(time.Second)
		c.in.write([]byte("world"))
		out := <-done
		b.want("code", code(out), relay.CodeTunnelLost)
		b.want("whole", string(b.event().Request.Body.Data), "helloworld")
		b.want("body state", b.event().Request.Body.State, relay.BodyComplete)
	})
}

func TestTakeover(t *testing.T) {
	var k bodyRecorder
	run(t, func(l *local) {
		l.until("hello")
		time.Sleep(time.Second)
		l.Write(ok)
	}, func(b *fixture) {
		c, done := b.begin(post)
		time.Sleep(time.Millisecond)
		tun, h := b.attach(k.serve)
		synctest.Wait()
		b.want("told", fmt.Sprint(b.tun.closed), "[taken over by a newer connection]")
		b.want("in the audit log", len(b.s.takeovers), 1)
		b.send(numbered(1))
		b.want("newest gets new requests", k.list(), "00001")
		<-done
		b.want("running one finished", c.answer(), ok)
		b.hold.Detach(false)
		b.hold.Stale()
		st, _ := b.d.Status(context.Background(), []relay.Alias{*b.a})
		b.want("the old one has no say", st[0].State, relay.TunnelOnline)
		h.Detach(true)
		st, _ = b.d.Status(context.Background(), []relay.Alias{*b.a})
		b.want("state", st[0].State, relay.TunnelOffline)
		synctest.Wait()
		b.want("touched", b.s.touched[7] >= 2, true)
		tun.cutAll()
	})
}
