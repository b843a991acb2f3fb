package delivery_test

import (
	"context"
	"fmt"
	"strings"
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

// TestStaleBeforeItsAttachIsStored: a tunnel that becomes stale at once after Attach is stored as stale. Its
// record replaces that of a tunnel at another node.
func TestStaleBeforeItsAttachIsStored(t *testing.T) {
	run(t, nil, func(b *fixture) {
		tun := &memTunnel{info: relay.TunnelInfo{ID: "tun_quick"}}
		b.d.Attach(b.a, tun).Stale()
		time.Sleep(time.Second)
		b.s.mu.Lock()
		r := b.s.tunnels[7]
		b.s.mu.Unlock()
		b.want("stored", words(r.ID, r.State), words("tun_quick", relay.TunnelStale))
	}, func(b *fixture) {
		b.s.tunnels[7] = relay.TunnelRecord{TunnelInfo: relay.TunnelInfo{ID: "tun_before"}, Alias: 7, Node: "there", State: relay.TunnelOnline}
		b.opt.Remote = func(relay.TunnelRecord) relay.RemoteTunnel { return &memRemote{memTunnel: &memTunnel{}} }
	})
}

func TestDetachIsShown(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		sub, err := b.d.Subscribe(context.Background(), relay.System(), 7, "")
		b.want("error", err, nil)
		defer sub.Close()
		b.hold.Detach(true)
		ctx, cancel := timeout(time.Second)
		defer cancel()
		items, err := sub.Next(ctx)
		b.want("shown", words(names(items), err), "tunnel <nil>")
		b.want("state", strings.Contains(string(items[0].Data), `"state":"offline"`), true)
	})
}

// TestRunningForgetsWhatEnded: Running contains an attempt in progress, and no longer contains it a second
// after its end.
func TestRunningForgetsWhatEnded(t *testing.T) {
	run(t, always("hello", ok), func(b *fixture) {
		c, done := b.begin("POST / HTTP/1.1\r\nHost: hook.localhost\r\nContent-Length: 5\r\n\r\n")
		synctest.Wait()
		b.want("under way", len(b.d.Running()), 1)
		c.in.write([]byte("hello"))
		c.in.finish(nil)
		<-done
		time.Sleep(time.Second)
		b.want("under way after its end", len(b.d.Running()), 0)
	})
}

// TestProviderOfALargeBody: the event type is found at the beginning of a body that is stored in
// parts.
func TestProviderOfALargeBody(t *testing.T) {
	run(t, always(`"end"}`, ok), func(b *fixture) {
		body := `{"id":"evt_1","type":"charge.refunded","pad":"` + strings.Repeat("x", relay.BodyPart*5/2) + `","last":"end"}`
		b.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: hook.localhost\r\nStripe-Signature: t=1,v1=0\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		p := b.event().Provider
		b.want("provider", words(p.Name, p.EventType), "stripe charge.refunded")
	})
}

func TestEndlessAnswerToAReplayIsCut(t *testing.T) {
	endless := false
	run(t, func(l *local) {
		l.until("hello")
		if !endless {
			l.Write(ok)
			return
		}
		l.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for l.Write("1000\r\n" + strings.Repeat("x", 0x1000) + "\r\n") {
			time.Sleep(time.Millisecond)
		}
	}, func(b *fixture) {
		b.send(post)
		endless = true
		begun := time.Now()
		e, n, _ := b.d.Replay(context.Background(), relay.System(), b.event().ID, 5*time.Minute)
		b.want("state", words(e.Attempt(n).State, e.Attempt(n).ResponseState), "delivered cut")
		b.want("cut when its record is full", time.Since(begun) < 10*time.Second, true)
	}, func(b *fixture) { b.opt.MaxResponseCapture = 64 << 10 })
}
