package delivery_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"relay"
	"relay/delivery"
)

// nullStore stores nothing and resolves tickets at once.
type nullStore struct {
	*memStore
	done *relay.Ticket
}

func (s *nullStore) NewID() relay.ID { return relay.ID{1} }

func (s *nullStore) Accept(*relay.Event) *relay.Ticket { return s.done }

func (s *nullStore) Chunk(relay.ID, int, int, []byte) *relay.Ticket { return s.done }

func (s *nullStore) Finish(relay.ID, *relay.Attempt, string) *relay.Ticket { return s.done }

func (s *nullStore) CallerGone(relay.ID, int) *relay.Ticket { return s.done }

func (s *nullStore) Amend(*relay.Event) *relay.Ticket { return s.done }

func (s *nullStore) Requeue(relay.ID, int) *relay.Ticket { return s.done }

// echoChannel answers each write at once, without goroutines.
type echoChannel struct {
	noAddr
	answer []byte
	ready  chan struct{}
}

func (c *echoChannel) Write(p []byte) (int, error) {
	c.ready <- struct{}{}
	return len(p), nil
}

func (c *echoChannel) Ready() <-chan struct{} { return c.ready }

func (c *echoChannel) Read(p []byte) (int, error)          { return copy(p, c.answer), nil }
func (c *echoChannel) SetWriteDeadline(time.Time) error    { return nil }
func (c *echoChannel) End(time.Duration) (e relay.ConnEnd) { return e }
func (c *echoChannel) CloseWrite() error                   { return nil }
func (c *echoChannel) Close() error                        { return nil }

type echoTunnel struct{ answer []byte }

func (t *echoTunnel) Open(context.Context, netip.AddrPort) (relay.Conn, error) {
	return &echoChannel{answer: t.answer, ready: make(chan struct{}, 1)}, nil
}
func (t *echoTunnel) Heard() time.Duration   { return 0 }
func (t *echoTunnel) LazyDial() bool         { return false }
func (t *echoTunnel) Info() relay.TunnelInfo { return relay.TunnelInfo{} }
func (t *echoTunnel) Close(string)           {}

// sinkCaller is a caller that has sent its whole body and reads every answer.
type sinkCaller struct{ body []byte }

func (c *sinkCaller) Buffered() int { return len(c.body) }
func (c *sinkCaller) Read(p []byte) (int, error) {
	n := copy(p, c.body)
	c.body = c.body[n:]
	return n, nil
}
func (c *sinkCaller) Unread([]byte)               {}
func (c *sinkCaller) Write(p []byte) (int, error) { return len(p), nil }
func (c *sinkCaller) CloseWrite() error           { return nil }
func (c *sinkCaller) Abort()                      {}

// benchExchange returns a function that runs one exchange with a request body of 2 KiB. fresh is the alias
// setting freshConnections.
func benchExchange(tb testing.TB, fresh bool) func() {
	done := relay.NewTicket()
	done.Resolve(nil)
	a := &relay.Alias{ID: 7, Name: "hook", Settings: relay.DefaultSettings()}
	a.Settings.FreshConnections = fresh
	d := delivery.New(delivery.Options{
		Store: &nullStore{memStore: newStore(a), done: done}, MaxHead: 128 << 10, MaxBody: 32 << 20,
		MaxResponseCapture: 32 << 20, ResponseTimeout: time.Minute, QueueLimit: 10000, QueueBytes: 1 << 30,
	})
	if err := d.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close(context.Background()) })
	d.Attach(a, &echoTunnel{answer: []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")})
	head := []byte("POST /hook HTTP/1.1\r\nHost: hook.localhost\r\nUser-Agent: bench/1\r\nContent-Type: application/json\r\n" +
		"X-Signature: 0123456789abcdef0123456789abcdef\r\nAccept: */*\r\nContent-Length: 2048\r\n\r\n")
	body := make([]byte, 2048)
	from := netip.MustParseAddrPort("203.0.113.9:5201")
	caller := &sinkCaller{}
	in := &relay.Inbound{Alias: a, From: from, Head: head, Caller: caller}
	return func() {
		caller.body, in.Arrived = body, time.Now()
		if out := d.Capture(context.Background(), in); !out.KeepAlive {
			tb.Fatalf("not kept alive: %+v", out.Answer)
		}
	}
}

func BenchmarkExchange(b *testing.B) {
	for name, fresh := range map[string]bool{"reused": false, "fresh": true} {
		b.Run(name, func(b *testing.B) {
			one := benchExchange(b, fresh)
			b.ReportAllocs()
			for b.Loop() {
				one()
			}
		})
	}
}

func TestExchangeAllocates(t *testing.T) {
	for name, fresh := range map[string]bool{"reused": false, "fresh": true} {
		one := benchExchange(t, fresh)
		if n := testing.AllocsPerRun(200, one); n > 40 {
			t.Errorf("%s: %v allocations an exchange, want at most 40", name, n)
		}
	}
}

func (c *sinkCaller) DisableWriteTimeout()     {}
func (c *sinkCaller) ResetOnCrash()            {}
func (c *sinkCaller) Presence() relay.Presence { return relay.CallerPresent }
func (*sinkCaller) Left() bool                 { return false }
