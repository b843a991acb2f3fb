package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"relay"
)

// TestWritesWithoutTimeout: after DisableWriteTimeout, a write is complete although the caller does not read
// for an hour.
func TestWritesWithoutTimeout(t *testing.T) {
	t.Parallel()
	u := &upstream{}
	piped(t, func(o *Options) { o.Capture = u }, func(t *testing.T, dial func() net.Conn) {
		u.answer = func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
			in.Caller.DisableWriteTimeout()
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

// TestStallTimeAfterAnotherDeadline: after a write deadline was set and removed, a stalled write ends after
// the stall time.
func TestStallTimeAfterAnotherDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := net.Pipe()
		defer func() { _ = theirs.Close() }()
		c := &stallConn{Conn: mine, stall: 30 * time.Second}
		defer func() { _ = mine.Close() }()
		go func() { _, _ = theirs.Read(make([]byte, 1)) }()
		send(t, c, "a")
		_ = c.SetWriteDeadline(time.Now().Add(time.Hour))
		_ = c.SetWriteDeadline(time.Time{})
		defer time.AfterFunc(time.Hour, func() { _ = theirs.Close() }).Stop()
		begun := time.Now()
		_, err := io.WriteString(c, "b")
		if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took < 30*time.Second || took > 32*time.Second {
			t.Errorf("got %v after %v", err, took)
		}
	})
}

// pouring returns an upstream that answers with a body of size bytes, and a channel that gets the
// result of writing this body.
func pouring(size int) (*upstream, chan error) {
	ended := make(chan error, 1)
	return &upstream{answer: func(_ context.Context, in *relay.Inbound) (relay.Outcome, bool) {
		_, err := fmt.Fprintf(in.Caller, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		for b := make([]byte, 64<<10); err == nil && size > 0; size -= min(size, len(b)) {
			_, err = in.Caller.Write(b[:min(size, len(b))])
		}
		if err != nil {
			in.Caller.Abort()
		}
		ended <- err
		return relay.Outcome{}, true
	}}, ended
}

// slowReader is a caller that reads slowly: 16 KiB at a time, as often as the field reads says, with the
// pause in the field every between two reads. stall is the StallTimeout of the server.
type slowReader struct {
	buffer       int // receive buffer in bytes; 0 = that of the system
	stall, every time.Duration
	reads        int
	rest         bool // after its slow reads the caller reads the rest without pauses
}

// TestSlowReaderIsNotCut: a caller that reads slowly but steadily is not cut. It reads at least 512 KiB
// within the stall time, because Linux announces free space of the receive buffer in large steps. A try that
// failed while the machine stood still is repeated.
func TestSlowReaderIsNotCut(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]slowReader{
		"default buffer": {0, 2 * time.Second, 60 * time.Millisecond, 80, true},
		"small buffer":   {4 << 10, 4 * time.Second, 125 * time.Millisecond, 20, false},
		"large buffer":   {256 << 10, 2 * time.Second, 60 * time.Millisecond, 80, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for try := 1; ; try++ {
				longest := standstill()
				err := r.read(t)
				stood := longest()
				if err == nil {
					return
				}
				if stood < time.Second/2 || try == 10 {
					t.Fatalf("try %d: %v; the machine stood still for %v at most", try, err, stood)
				}
				t.Logf("try %d: %v; the machine stood still for %v", try, err, stood)
			}
		})
	}
}

// standstill measures the longest time in which this process could not run. The returned function ends
// the measurement and returns that time.
func standstill() (longest func() time.Duration) {
	end, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		long, last := time.Duration(0), time.Now()
		for {
			select {
			case <-tick.C:
				now := time.Now()
				long, last = max(long, now.Sub(last)), now
			case <-end:
				most <- max(long, time.Since(last))
				return
			}
		}
	}()
	return func() time.Duration {
		close(end)
		return <-most
	}
}

// read makes one request and reads the response; the error says why it is not complete.
func (r slowReader) read(t *testing.T) error {
	const size = 16 << 20
	u, ended := pouring(size)
	o := testOptions(t, u)
	o.StallTimeout = r.stall
	_, addr := start(t, o)
	c := dialBuffered(t, addr, r.buffer)
	defer func() { _ = c.Close() }()
	send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err != nil {
		return err
	}
	tick, b := time.NewTicker(r.every), make([]byte, 16<<10)
	defer tick.Stop()
	for i := range r.reads {
		select {
		case err := <-ended:
			return fmt.Errorf("cut after %d reads: %w", i, err)
		case <-tick.C:
		}
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			return fmt.Errorf("read %d: %w", i, err)
		}
	}
	if !r.rest {
		_ = c.Close()
		<-ended
		return nil
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if got := n + int64(r.reads*len(b)); err != nil || got != size {
		return fmt.Errorf("got %d of %d bytes, %w", got, size, err)
	}
	return <-ended
}

// TestSilentReaderIsCut: the write to a caller that does not read fails after the stall time, and the
// response is incomplete.
func TestSilentReaderIsCut(t *testing.T) {
	t.Parallel()
	const most = 10 * time.Second // longest time until the write fails; first the server fills the buffers, which takes long on a busy machine
	for name, buffer := range map[string]int{"small buffer": 4 << 10, "default buffer": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, ended := pouring(64 << 20)
			o := testOptions(t, u)
			o.StallTimeout = 400 * time.Millisecond
			_, addr := start(t, o)
			c := dialBuffered(t, addr, buffer)
			begun := time.Now()
			send(t, c, "GET / HTTP/1.1\r\nHost: shop.hooks.test\r\n\r\n")
			err := <-ended
			took := time.Since(begun)
			t.Logf("cut after %v", took)
			if err == nil || took < 400*time.Millisecond || took > most {
				t.Errorf("got %v after %v", err, took)
			}
			if _, err := io.Copy(io.Discard, c); err == nil {
				t.Error("the answer seems to be whole")
			}
		})
	}
}

// dialBuffered connects with a receive buffer of size bytes; 0 = the system's default.
func dialBuffered(t *testing.T, addr string, size int) net.Conn {
	t.Helper()
	c := dial(t, addr)
	if tc, ok := c.(*net.TCPConn); ok && size > 0 {
		if err := tc.SetReadBuffer(size); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestIdleConnectionsAreCheap: two thousand idle connections take at most 20 KiB each, which includes the
// memory of the client.
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

// memory returns the bytes of heap and stacks in use.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
