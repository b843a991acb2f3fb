package conformance

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestFaultSoak sends an even stream of requests while tunnels come and go, and checks that the
// numbers of goroutines and descriptors return to their former values.
func TestFaultSoak(t *testing.T) {
	t.Parallel()
	storesInFull(t, func(t *testing.T, databaseURL string) {
		requests, cycles, long := size(700, 10000), size(16, 100), size(4*time.Second, 60*time.Second)
		r := startRelay(t, databaseURL)
		local := localServer(t)
		r.tunnel("steady", local)
		r.cycle("flap", local)
		r.stream("steady", 100, time.Second)
		base := r.atRest()

		begun := time.Now()
		var failed atomic.Int32
		var work sync.WaitGroup
		work.Go(func() { failed.Add(int32(r.stream("steady", requests, long))) })
		for i := range cycles {
			r.cycle("flap", local)
			<-time.After(time.Until(begun.Add(time.Duration(i+1) * long / time.Duration(cycles))))
		}
		work.Wait()
		took := time.Since(begun)
		after, ok := r.settled(base, 10, 5)
		stored := len(r.events("steady", "&state=delivered")) - 100
		figure(t, "%v with %d requests and %d tunnel cycles: failed %d, missing %d, goroutines %d before and %d after, descriptors %d and %d, RSS %d MiB and %d MiB",
			took.Round(100*time.Millisecond), requests, cycles, failed.Load(), requests-stored, base.Goroutines, after.Goroutines, base.OpenFds, after.OpenFds, base.RSSBytes>>20, after.RSSBytes>>20)
		if failed.Load() > 0 || stored != requests || !ok {
			t.Errorf("failed %d, stored %d, before %+v, after %+v", failed.Load(), stored, base, after)
		}
	})
}

// cycle opens a tunnel, sends a request through it, and cuts the tunnel.
func (r *relayServer) cycle(alias, local string) {
	r.t.Helper()
	cmd := r.tunnel(alias, local)
	if status, body, _ := r.call(alias, "/cycle", "x"); status != 200 {
		r.t.Errorf("a request through a new tunnel was answered %d %s", status, body)
	}
	cmd.Kill()
	r.waitFor(10*time.Second, alias+" to be offline", func() bool { return !r.online(alias) })
}

// stream sends n requests evenly over the duration long, on eight connections, and counts the requests that
// were not answered with 200.
func (r *relayServer) stream(alias string, n int, long time.Duration) (failed int) {
	const lanes = 8
	var bad atomic.Int32
	var work sync.WaitGroup
	begun := time.Now()
	for lane := range lanes {
		work.Go(func() {
			client := callerTo(r.http, 30*time.Second)
			defer client.CloseIdleConnections()
			for i := lane; i < n; i += lanes {
				<-time.After(time.Until(begun.Add(time.Duration(i) * long / time.Duration(n))))
				res, err := client.Post("http://"+alias+".localhost"+fmt.Sprintf("/stream/%d", i), "text/plain", nil)
				if err != nil {
					bad.Add(1)
					continue
				}
				if drain(res) != nil || res.StatusCode != 200 {
					bad.Add(1)
				}
			}
		})
	}
	work.Wait()
	return int(bad.Load())
}
