package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/relaytest"
)

// TestFaultManyCallers lets many senders send at once, each on a connection that stays open. All requests are
// answered, none is missing, memory stays bounded, and the numbers of goroutines and descriptors return to
// their former values.
func TestFaultManyCallers(t *testing.T) {
	storesInFull(t, func(t *testing.T, databaseURL string) {
		senders, each := size(200, 2000), 5
		r := startRelay(t, databaseURL)
		r.tunnel("many", localServer(t))
		// These requests open the connections that relayd keeps open, so that base, the numbers before the test,
		// includes them.
		manySenders(r, 20, 2)
		base := r.atRest()

		stop, most := r.watchMemory()
		begun := time.Now()
		errors := manySenders(r, senders, each)
		took := time.Since(begun)
		stop()
		after, ok := r.settled(base, 10, 5)
		stored := len(r.events("many", "&state=delivered")) - 20*2
		figure(t, "%d senders on kept connections: %d requests in %v, errors %d, missing %d, RSS at most %d MiB, goroutines %d before and %d after, descriptors %d and %d",
			senders, senders*each, took.Round(10*time.Millisecond), errors, senders*each-stored, most.Load()>>20, base.Goroutines, after.Goroutines, base.OpenFds, after.OpenFds)
		if errors > 0 || stored != senders*each || most.Load() > memory(t, 400<<20) || !ok {
			t.Errorf("errors %d, stored %d, RSS %d, before %+v, after %+v", errors, stored, most.Load(), base, after)
		}
	})
}

// manySenders opens n connections and then sends requests on all of them; the parameter each is the number of
// requests on one connection. It returns the number of requests that were not answered with 200.
func manySenders(r *relayServer, n, each int) int {
	r.t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", r.http)
		if err != nil {
			r.t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		conns[i] = c
	}
	var errors atomic.Int32
	var work sync.WaitGroup
	for i, c := range conns {
		work.Go(func() {
			defer c.Close()
			br := bufio.NewReader(c)
			for k := range each {
				if err := exchange(c, br, "many", fmt.Sprintf("/%d/%d", i, k), random(1024, uint64(i))); err != nil {
					errors.Add(int32(each - k))
					return
				}
			}
		})
	}
	work.Wait()
	return int(errors.Load())
}

// exchange sends one request on an open connection. Anything except a complete 200 is an error.
func exchange(c net.Conn, br *bufio.Reader, alias, path, body string) error {
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s.localhost\r\nContent-Length: %d\r\n\r\n%s", path, alias, len(body), body); err != nil {
		return err
	}
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != 200 {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}

// watchMemory records the largest memory of the server in most, until the returned function stop is called.
func (r *relayServer) watchMemory() (stop func(), most *atomic.Int64) {
	most = &atomic.Int64{}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			if res, err := http.Get("http://" + r.admin + "/debug/stats"); err == nil {
				most.Store(max(most.Load(), rssOf(res)))
			}
			select {
			case <-end:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() { close(end); <-done }, most
}

// TestFaultSlowHeads opens many sockets that send the head of a request slowly, one byte a second, and never
// complete it. relayd closes all of them, and until then answers one normal request each second.
func TestFaultSlowHeads(t *testing.T) {
	sockets, patience := size(200, 1000), size(3*time.Second, 10*time.Second)
	r := startRelay(t, "", "RELAY_HEAD_TIMEOUT="+patience.String())
	r.tunnel("probe", localServer(t))
	begun := time.Now()
	var closed atomic.Int32
	var last atomic.Int64
	var work sync.WaitGroup
	for range sockets {
		c := r.dial()
		work.Go(func() {
			if trickle(c, relaytest.Patience(2*patience)) {
				closed.Add(1)
				last.Store(max(last.Load(), int64(time.Since(begun))))
			}
		})
	}
	all := make(chan struct{})
	go func() { work.Wait(); close(all) }()
	probes, answered, slowest := 0, 0, time.Duration(0)
	for open := true; open; {
		select {
		case <-all:
			open = false
		case <-time.After(time.Second):
		}
		at := time.Now()
		status, _, _ := r.call("probe", "/probe", "x")
		slowest = max(slowest, time.Since(at))
		probes++
		if status == 200 {
			answered++
		}
	}
	figure(t, "%d sockets with a slow head: %d closed, the last after %v; probes answered %d of %d, slowest %v",
		sockets, closed.Load(), time.Duration(last.Load()).Round(100*time.Millisecond), answered, probes, slowest.Round(time.Millisecond))
	if int(closed.Load()) != sockets || time.Duration(last.Load()) > bound(2*patience) || answered != probes || slowest > bound(time.Second) {
		t.Errorf("closed %d of %d, the last after %v; probes %d of %d, slowest %v", closed.Load(), sockets, time.Duration(last.Load()), answered, probes, slowest)
	}
}

// trickle sends a head byte by byte and reports whether the server ended the connection.
func trickle(c net.Conn, limit time.Duration) bool {
	defer c.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.SetReadDeadline(time.Now().Add(limit))
		_, _ = io.Copy(io.Discard, c)
	}()
	begun := time.Now()
	_, _ = io.WriteString(c, "POST /slow HTTP/1.1\r\nHost: probe.localhost\r\nX-Slow: ")
	for {
		select {
		case <-ended:
			return time.Since(begun) < limit
		case <-time.After(time.Second):
			_, _ = io.WriteString(c, "a")
		}
	}
}
