package delivery_test

import (
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

func TestNothingIsForwardedWhileTheStoreFails(t *testing.T) {
	var k taker
	run(t, k.serve, func(b *bed) {
		b.s.fail("accept", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		out, _ := b.send(numbered(1))
		b.want("the first one", code(out), relay.CodeStoreUnavailable)
		for range 3 {
			out, _ = b.send(numbered(2))
			b.want("code", code(out), relay.CodeStoreUnavailable)
		}
		b.want("forwarded", k.list(), "00001")
		b.s.fail("accept", nil)
		out, c := b.send(numbered(3))
		b.want("when it is back", c.answer(), ok)
		b.want("keep-alive", out.KeepAlive, true)
		b.want("identical", *b.last().Identical, true)
		b.want("forwarded", k.list(), "00001 00003")
		_, c = b.send(numbered(4))
		b.want("answer", c.answer(), ok)
	})
}

func TestStoredFirstThenQueued(t *testing.T) {
	run(t, always("hello", ok), func(b *bed) {
		b.s.fail("accept", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		b.send(post)
		b.s.fail("accept", nil)
		b.tun.set(func() { b.tun.heard, b.tun.hang = time.Minute, true })
		out, _ := b.send(post)
		b.want("answer", code(out), "202")
		b.want("state", b.event().State, relay.StateQueued)
		b.want("queued", b.d.Stats().Queued, 1)
	})
}

func TestStoredFirstReadsWhatIsStillComing(t *testing.T) {
	run(t, always("hello", ok), func(b *bed) {
		b.s.fail("accept", relay.Errorf(relay.CodeStoreUnavailable, "down"))
		b.send(post)
		b.s.fail("accept", nil)
		c, done := b.begin("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe")
		time.Sleep(time.Second)
		c.in.write([]byte("llo\r\n0\r\n\r\n"))
		<-done
		b.want("answer", c.answer(), ok)
		b.want("identical", *b.last().Identical, true)
	})
}

func TestTakeoverWhileWaiting(t *testing.T) {
	var k taker
	run(t, always("00001", ok), func(b *bed) {
		b.tun.set(func() { b.tun.heard, b.tun.hang = time.Minute, true })
		c, done := b.begin(numbered(1))
		time.Sleep(time.Second)
		tun, h := b.attach(k.serve)
		<-done
		b.want("answer", c.answer(), ok)
		b.want("by the new one", k.list(), "00001")
		b.want("identical", *b.last().Identical, true)
		h.Detach(true)
		synctest.Wait()
		tun.cutAll()
	})
}

// With autoDeliver an event that was stored first and then reached nobody stayed queued
// until the tunnel was attached again, though it had not gone away.
func TestStoredFirstThenQueuedGoesOutByItself(t *testing.T) {
	var k taker
	run(t, k.serve, func(b *bed) {
		b.tun.set(func() { b.tun.openErr = relay.ErrNotSent })
		out, _ := b.send(numbered(1))
		b.want("answer", code(out), "202")
		b.tun.set(func() { b.tun.openErr = nil })
		time.Sleep(time.Minute)
		b.want("delivered", k.list(), "00001")
		b.want("state", b.event().State, relay.StateDelivered)
	}, func(b *bed) { b.opt.StoreFirst, b.a.Settings.AutoDeliver = yes, true })
}
