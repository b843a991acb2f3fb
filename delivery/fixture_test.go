package delivery_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"relay"
	"relay/delivery"
)

// fixture is a Delivery with one alias and, if serve is given, a tunnel for it.
type fixture struct {
	t    *testing.T
	d    *delivery.Delivery
	s    *memStore
	real delivery.Store // the store of realFixture
	a    *relay.Alias
	tun  *memTunnel
	hold relay.Attachment
	opt  delivery.Options

	caller *memCaller    // the connection of all requests; nil = each request has its own
	log    *bytes.Buffer // set by logged

	storeFirst bool // what Options.StoreFirst returns, in the tests that set it
}

// oneConnection makes all requests of a test come over one caller connection.
func oneConnection(b *fixture) { b.caller = newCaller("") }

// run runs f with a fixture in a bubble of fake time, and closes the fixture.
func run(t *testing.T, serve func(*local), f func(b *fixture), prepare ...func(b *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &fixture{t: t, a: &relay.Alias{ID: 7, Name: "hook", Owner: 1, Settings: relay.DefaultSettings()}}
		b.s = newStore(b.a)
		b.opt = delivery.Options{
			Store: b.s, MaxHead: 128 << 10, MaxBody: 32 << 20, MaxResponseCapture: 32 << 20,
			ResponseTimeout: 60 * time.Second, QueueLimit: 10000, QueueBytes: 1 << 30,
		}
		if serve != nil {
			b.tun = &memTunnel{serve: serve}
		}
		for _, p := range prepare {
			p(b)
		}
		b.d = delivery.New(b.opt)
		b.s.publish = b.d.Publish
		if err := b.d.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		if b.tun != nil {
			b.hold = b.d.Attach(b.a, b.tun)
		}
		defer b.close()
		f(b)
	})
}

func (b *fixture) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.d.Close(ctx); err != nil {
		b.t.Error("close:", err)
	}
	// A timer of the pool may still be closing the channels that the pool has removed.
	synctest.Wait()
	if n := b.d.Stats().Channels; n != 0 {
		b.t.Errorf("%d channels left open", n)
	}
	b.s.wg.Wait()
	if b.tun != nil {
		b.tun.cutAll()
		b.tun.wg.Wait()
	}
}

// inbound returns a request from raw bytes. Its buffered body is the text after the head, which may be
// only a part of the body.
func (b *fixture) inbound(raw string) (*relay.Inbound, *memCaller) {
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	c := newCaller(body)
	if b.caller != nil {
		c = b.caller
		c.head, c.out = []byte(body), newStream()
	}
	a, ok := b.d.Alias("hook")
	if !ok {
		b.t.Fatal("alias unknown")
	}
	return &relay.Inbound{
		Alias: a, From: netip.MustParseAddrPort("203.0.113.9:5201"), Arrived: time.Now(),
		Head: []byte(head + "\r\n\r\n"), Caller: c,
	}, c
}

// send runs one request to its end.
func (b *fixture) send(raw string) (relay.Outcome, *memCaller) {
	in, c := b.inbound(raw)
	return b.d.Capture(context.Background(), in), c
}

// begin runs one request in the background.
func (b *fixture) begin(raw string) (*memCaller, <-chan relay.Outcome) {
	in, c := b.inbound(raw)
	done := make(chan relay.Outcome, 1)
	go func() { done <- b.d.Capture(context.Background(), in) }()
	return c, done
}

func (b *fixture) event() *relay.Event {
	b.t.Helper()
	e := b.s.only()
	if e == nil {
		b.t.Fatal("not exactly one event")
	}
	return e
}

func (b *fixture) want(what string, got, want any) {
	b.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func code(o relay.Outcome) string {
	switch {
	case o.Answer == nil:
		return ""
	case o.Answer.Error == nil:
		return fmt.Sprint(o.Answer.Status)
	}
	return o.Answer.Error.Code
}

const (
	post = "POST /hook?x=1 HTTP/1.1\r\nHost: hook.localhost\r\nContent-Length: 5\r\n\r\nhello"
	get  = "GET / HTTP/1.1\r\nHost: hook.localhost\r\n\r\n"
	ok   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

// always returns a local server that answers each request with answer. The local server takes the text want
// for the end of a request.
func always(want, answer string) func(*local) {
	return func(l *local) {
		for l.until(want) {
			l.got = nil
			if !l.Write(answer) {
				return
			}
		}
	}
}
