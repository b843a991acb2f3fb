package conformance

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestFaultSlowHandshakes: callers that send only half of a TLS ClientHello are disconnected in time, and
// block no other caller.
func TestFaultSlowHandshakes(t *testing.T) {
	limit, sockets := size(5*time.Second, 10*time.Second), size(200, 1000)
	r, tg := newFilesRig(t, "RELAY_HEAD_TIMEOUT="+limit.String())
	tg.say(ok, false)
	hello := r.clientHello()
	var open sync.WaitGroup
	var last atomic.Int64
	for range sockets {
		c, err := net.Dial("tcp", r.https)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		begun := time.Now()
		if _, err := c.Write(hello[:len(hello)/2]); err != nil {
			t.Fatal(err)
		}
		open.Add(1)
		go func() {
			defer open.Done()
			_, _ = io.Copy(io.Discard, c)
			took := int64(time.Since(begun))
			for was := last.Load(); took > was && !last.CompareAndSwap(was, took); was = last.Load() {
			}
		}()
	}
	closed := make(chan struct{})
	go func() {
		open.Wait()
		close(closed)
	}()
	probes, slowest := 0, time.Duration(0)
	for under := true; under; probes++ {
		begun := time.Now()
		c, _ := r.shop()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\nhi", overTLS)
		got := make([]byte, len(ok))
		if _, err := io.ReadFull(c, got); err != nil {
			t.Errorf("probe: %q, %v", got, err)
		}
		tg.next()
		c.Close()
		slowest = max(slowest, time.Since(begun))
		select {
		case <-closed:
			under = false
		case <-time.After(size(200*time.Millisecond, time.Second)):
		case <-t.Context().Done():
			return
		}
	}
	took := time.Duration(last.Load())
	figure(t, "%d sockets with half a TLS greeting: all closed after %v, %d of %d probes answered, the slowest in %v",
		sockets, took.Round(10*time.Millisecond), probes, probes, slowest.Round(time.Millisecond))
	if took > bound(2*limit) {
		t.Errorf("the last one was closed after %v", took)
	}
}

// clientHello returns the first message of a TLS client.
func (r *tlsRelay) clientHello() []byte {
	r.t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	go func() { _ = tls.Client(far, &tls.Config{ServerName: overTLS}).HandshakeContext(r.t.Context()) }()
	hello := make([]byte, 4096)
	n, err := near.Read(hello)
	if err != nil {
		r.t.Fatal(err)
	}
	return hello[:n]
}

// TestFaultStopOverTLS: TLS requests that are in progress when relayd stops get complete answers, and their
// connections end with close_notify.
func TestFaultStopOverTLS(t *testing.T) {
	t.Parallel()
	const requests = 50
	r, tg := newFilesRig(t)
	var inside atomic.Int64
	let := make(chan struct{})
	tg.run(func(c net.Conn, br *bufio.Reader) {
		_, _ = readRaw(br)
		inside.Add(1)
		<-let
		_, _ = io.WriteString(c, ok)
	})
	var callers sync.WaitGroup
	var whole atomic.Int64
	for range requests {
		callers.Add(1)
		go func() {
			defer callers.Done()
			c, tap := r.shop()
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\nhi", overTLS)
			got, err := io.ReadAll(c)
			if err == nil && string(got) == ok && tap.notified() {
				whole.Add(1)
			}
		}()
	}
	r.waitFor(20*time.Second, "all requests to be under way", func() bool { return inside.Load() == requests })
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.stop(syscall.SIGTERM)
	}()
	r.waitFor(10*time.Second, "the stop to begin", func() bool { return r.ready() != 200 })
	close(let)
	<-stopped
	callers.Wait()
	figure(t, "stop over TLS: %d of %d answered whole with close_notify, exit %d", whole.Load(), requests, r.exit())
	if whole.Load() != requests || r.exit() != 0 {
		t.Errorf("%d of %d answered whole, exit %d", whole.Load(), requests, r.exit())
	}
}
