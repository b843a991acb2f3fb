package delivery_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/delivery"
)

// TestNoRoom: if Capacity returns storage-full, the caller of a request gets this error, and Reject stores no
// event. Both requests are counted, and nothing is forwarded.
func TestNoRoom(t *testing.T) {
	var k bodyRecorder
	b := realFixture(t)
	full := &relay.Error{Code: relay.CodeStorageFull, RetryAfter: 30 * time.Second}
	needs := make(chan int64, 10)
	d := delivery.New(delivery.Options{
		Store: b.real, MaxBody: 1 << 20, ResponseTimeout: realWait,
		Capacity: func(alias, need int64, _ time.Duration) *relay.Error {
			if alias != b.a.ID {
				t.Errorf("asked for alias %d", alias)
			}
			needs <- need
			return full
		},
	})
	must(t, d.Start(context.Background()))
	first := b.d
	b.d = d
	tun, _ := b.attach(k.serve)
	defer func() { tun.cutAll(); tun.wg.Wait() }()
	out, _ := b.send(numbered(1))
	b.want("answer", code(out), relay.CodeStorageFull)
	b.want("event", out.Answer.Event.IsZero(), true)
	b.want("retry", out.Answer.Error.RetryAfter, 30*time.Second)
	b.want("need", <-needs, int64(len(numbered(1))))
	b.d.Reject(&relay.Inbound{Alias: b.a, Head: []byte("bad\r\n\r\n"), Arrived: time.Now()}, relay.Errorf(relay.CodeRequestMalformed, "x"))
	<-needs
	b.want("counted", d.Stats().StorageFull, int64(2))
	b.want("forwarded", strings.TrimSpace(k.list()), "")
	last, err := b.real.LastEvents(context.Background(), []int64{b.a.ID})
	must(t, err)
	b.want("kept", len(last), 0)
	ctx, cancel := timeout(realWait)
	defer cancel()
	must(t, d.Close(ctx))
	b.d = first
}

// TestStoreFirst: while StoreFirst is true, a request that cannot be stored is not forwarded. Requests that
// can be stored are forwarded unchanged.
func TestStoreFirst(t *testing.T) {
	var k bodyRecorder
	var first bool
	run(t, k.serve, func(b *fixture) {
		first = true
		b.s.fail("accept", relay.Errorf(relay.CodeStoreUnavailable, "full"))
		out, _ := b.send(numbered(1))
		b.want("answer", code(out), relay.CodeStoreUnavailable)
		b.want("forwarded", k.list(), "")
		b.s.fail("accept", nil)
		_, c := b.send(numbered(2))
		b.want("answer", c.answer(), ok)
		_, c = b.send(numbered(3))
		b.want("answer", c.answer(), ok)
		b.want("forwarded", k.list(), "00002 00003")
		b.want("identical", *b.last().Identical, true)
	}, func(b *fixture) { b.opt.StoreFirst = func() bool { return first } })
}
