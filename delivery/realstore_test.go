package delivery_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/delivery"
	"relay/store"
)

// realWait is long enough for every step in real time on a slow machine.
const realWait = 30 * time.Second

// eventually polls until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(realWait); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}

// realFixture is a fixture on a real store and real time.
func realFixture(t *testing.T) *fixture {
	t.Helper()
	ctx, sys := context.Background(), relay.System()
	s, err := store.Open(ctx, store.Options{DataDir: t.TempDir(), AliasClaim: true, MaxAliases: 50})
	must(t, err)
	_, _, err = s.Migrate(ctx)
	must(t, err)
	b := &fixture{t: t, s: newStore()}
	b.real = s
	b.d = delivery.New(delivery.Options{
		Store: s, MaxHead: 128 << 10, MaxBody: 32 << 20, MaxResponseCapture: 32 << 20,
		ResponseTimeout: realWait, QueueLimit: 100, QueueBytes: 1 << 30,
	})
	must(t, s.Serve(ctx, b.d.Publish))
	must(t, b.d.Start(ctx))
	t.Cleanup(func() {
		ctx, cancel := timeout(realWait)
		defer cancel()
		must(t, b.d.Close(ctx))
		must(t, s.Close())
	})
	_, err = s.CreateAccount(ctx, sys, "alice", false)
	must(t, err)
	b.a, err = s.CreateAlias(ctx, sys, "hook", "alice")
	must(t, err)
	eventually(t, "the alias is known", func() bool { _, known := b.d.Alias("hook"); return known })
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nextEvent returns the id of the next event in the live feed. It skips the event whose id is the parameter
// but, and items without an event.
func nextEvent(t *testing.T, sub relay.Subscription, but relay.ID) relay.ID {
	t.Helper()
	ctx, cancel := timeout(realWait)
	defer cancel()
	for {
		items, err := sub.Next(ctx)
		must(t, err)
		for _, item := range items {
			if i := strings.Index(string(item.Data), relay.IDPrefix); i >= 0 {
				id, err := relay.ParseID(string(item.Data[i : i+len(relay.ID{}.String())]))
				must(t, err)
				if id != but {
					return id
				}
			}
		}
	}
}

func TestOnARealStore(t *testing.T) {
	var k bodyRecorder
	b := realFixture(t)
	ctx, sys := context.Background(), relay.System()

	out, _ := b.send(numbered(1))
	b.want("offline", code(out), "202")
	first := out.Answer.Event
	tun, _ := b.attach(k.serve)
	defer func() { tun.cutAll(); tun.wg.Wait() }()
	_, c := b.send(numbered(2))
	b.want("live", c.answer(), ok)
	n, err := b.d.Release(ctx, sys, "hook")
	must(t, err)
	b.want("released", n, 1)
	eventually(t, "queued delivery", func() bool { return strings.Contains(k.list(), "00001") })
	eventually(t, "queue is empty", func() bool { return b.d.Stats().Queued == 0 })
	e, n, err := b.d.Replay(ctx, sys, first, realWait)
	must(t, err)
	a := *e.Attempt(n)
	b.want("replay", words(a.State, a.Status, *a.Identical, a.Actor), "delivered 200 true system")
	before, err := b.real.Attempts(ctx, sys, first, relay.AttemptPage{Before: n, Limit: 1})
	must(t, err)
	b.want("first attempt", before[0].State, relay.StateDelivered)
	e, err = b.real.Request(ctx, sys, first, 1<<20)
	must(t, err)
	b.want("request", string(e.Request.Head)+string(e.Request.Body.Data), numbered(1))
	st, err := b.d.Status(ctx, []relay.Alias{*b.a})
	must(t, err)
	b.want("status", words(st[0].State, st[0].Queued), "online 0")
}

func TestLargeOnARealStore(t *testing.T) {
	const size = 3<<20 + 5
	body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
	b := realFixture(t)
	ctx, sys := context.Background(), relay.System()
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", size)
	answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, body)
	tun, _ := b.attach(func(l *local) {
		if l.n(len(head) + size) {
			l.Write(answer)
		}
	})
	defer func() { tun.cutAll(); tun.wg.Wait() }()
	sub, err := b.d.Subscribe(ctx, sys, 0, "")
	must(t, err)
	defer sub.Close()
	c, done := b.begin(head)
	go c.in.write(body)
	<-done
	b.want("answer", c.answer() == answer, true)
	first := nextEvent(t, sub, relay.ID{})

	early, _ := b.attach(func(l *local) { l.until("\r\n\r\n"); l.Write(ok) })
	defer func() { early.cutAll(); early.wg.Wait() }()
	c, done = b.begin(head)
	go c.in.write(body)
	<-done
	id := nextEvent(t, sub, first)
	eventually(t, "the whole body of a request that was answered early", func() bool {
		e, err := b.real.Request(ctx, sys, id, 0)
		return err == nil && e.Request.Body.State == relay.BodyComplete && e.Request.Body.Stored == size
	})
	whole, _ := b.attach(func(l *local) {
		if l.n(len(head)+size) && bytes.HasSuffix(l.got, body) {
			l.Write(ok)
		}
	})
	defer func() { whole.cutAll(); whole.wg.Wait() }()
	e, n, err := b.d.Replay(ctx, sys, id, realWait)
	must(t, err)
	b.want("replay", words(e.Attempt(n).State, *e.Attempt(n).Identical), "delivered true")
}
