package server

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
)

// Writes of an upgraded connection wait for as long as the caller likes.
func TestUnhurriedWrites(t *testing.T) {
	t.Parallel()
	u := &upstream{}
	piped(t, func(o *Options) { o.Capture = u }, func(t *testing.T, dial func() net.Conn) {
		u.answer = func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
			in.Caller.Unhurried()
			_, _ = io.WriteString(in.Caller, "HTTP/1.1 101 Switching Protocols\r\n\r\nupgraded")
			return relay.Outcome{}, true
		}
		c := dial()
		send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		time.Sleep(time.Hour)
		if got := rest(t, c); !strings.HasSuffix(got, "upgraded") {
			t.Errorf("got %q", got)
		}
	})
}

// Two thousand kept connections that are silent hold no read buffers.
func TestIdleConnectionsAreCheap(t *testing.T) {
	o := testOptions(t, &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		_, _ = io.WriteString(in.Caller, "HTTP/1.1 204 No Content\r\n\r\n")
		return relay.Outcome{KeepAlive: true}, true
	}})
	o.Log = nil
	_, addr := start(t, o)
	const n = 2000
	conns := make([]net.Conn, n)
	before := memory()
	var wg sync.WaitGroup
	for i := range conns {
		conns[i] = dial(t, addr)
	}
	wg.Go(func() {
		b := make([]byte, 100)
		for _, c := range conns {
			send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
			if _, err := io.ReadFull(c, b[:len("HTTP/1.1 204 No Content\r\n\r\n")]); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	each := (memory() - before) / n
	t.Logf("%d bytes for a connection, both ends", each)
	if each > 20<<10 {
		t.Errorf("an idle connection takes %d bytes", each)
	}
}

// memory is heap and stacks in use.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func BenchmarkIngress(b *testing.B) {
	o := testOptions(b, &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		var p [1 << 10]byte
		for in.Caller.Buffered() > 0 {
			_, _ = in.Caller.Read(p[:])
		}
		_, _ = in.Caller.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
		return relay.Outcome{KeepAlive: true}, true
	}})
	o.Log = nil
	_, addr := start(b, o)
	c := dial(b, addr)
	_ = c.SetDeadline(time.Time{})
	answer := make([]byte, len("HTTP/1.1 204 No Content\r\n\r\n"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write([]byte(hello)); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			b.Fatal(err)
		}
	}
}
