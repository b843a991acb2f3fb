package conformance

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestFaultNoisyNeighbour floods one alias whose local server never answers and
// compares what another alias' callers wait with and without it, in one run. A
// disturbed machine gets two more tries.
func TestFaultNoisyNeighbour(t *testing.T) {
	storesInFull(t, func(t *testing.T, databaseURL string) {
		r := newRig(t, databaseURL, "RELAY_RESPONSE_TIMEOUT="+hang.String())
		hung := newTarget(t)
		hung.run(func(c net.Conn, _ *bufio.Reader) { <-t.Context().Done() })
		r.tunnel("noisy", hung.addr)
		r.tunnel("quiet", localServer(t))
		phase := size(2*time.Second, 8*time.Second)
		r.measure(phase / 4) // warm
		for try := 1; ; try++ {
			still := r.measure(phase)
			stop := r.flood(size(150, 250))
			noisy := r.measure(phase)
			stop()
			still.add(r.measure(phase))
			got := float64(quantile(noisy.waits, 0.99)) / float64(quantile(still.waits, 0.99))
			if got > 2 && try < 3 {
				continue
			}
			figure(t, "one alias flooded, its local server hung: p99 of another alias %v with it, %v without: ratio %.2f (try %d); requests %d and %d, errors %d",
				quantile(noisy.waits, 0.99).Round(10*time.Microsecond), quantile(still.waits, 0.99).Round(10*time.Microsecond), got, try, len(noisy.waits), len(still.waits), still.errors+noisy.errors)
			if got > 2 || still.errors+noisy.errors > 0 {
				t.Errorf("p99 ratio %.2f, errors %d", got, still.errors+noisy.errors)
			}
			return
		}
	})
}

// hang is when relayd gives the hung local server up.
const hang = 3 * time.Second

// quiet is what callers of the quiet alias saw.
type quiet struct {
	waits  []time.Duration
	errors int
}

func (q *quiet) add(o quiet) {
	q.waits, q.errors = append(q.waits, o.waits...), q.errors+o.errors
}

// measure sends to the quiet alias from four connections, 100 requests a second
// each at most.
func (r *rig) measure(d time.Duration) quiet {
	var mu sync.Mutex
	var q quiet
	var work sync.WaitGroup
	end := time.Now().Add(d)
	for range 4 {
		work.Go(func() {
			c, err := net.Dial("tcp", r.http)
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(end.Add(30 * time.Second))
			br := bufio.NewReader(c)
			for time.Now().Before(end) {
				begun := time.Now()
				err := exchange(c, br, "quiet", "/q", "x")
				mu.Lock()
				q.waits = append(q.waits, time.Since(begun))
				if err != nil {
					q.errors++
				}
				mu.Unlock()
				if err != nil {
					return
				}
				<-time.After(10 * time.Millisecond)
			}
		})
	}
	work.Wait()
	return q
}

// flood keeps n requests to the noisy alias under way, and waits until they are. The
// first come one after another, so that those that get through to the local server
// do not all time out in the same moment: such a burst would show how fast the
// machine is, not what the aliases have to do with each other.
func (r *rig) flood(n int) (stop func()) {
	r.t.Helper()
	end := make(chan struct{})
	var work sync.WaitGroup
	var came atomic.Int32
	for i := range n {
		work.Go(func() {
			select {
			case <-end:
				return
			case <-time.After(hang * time.Duration(min(i, 64)) / 64):
			}
			for k := 0; ; k++ {
				c, err := net.Dial("tcp", r.http)
				if err != nil {
					return
				}
				came.Add(1)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = exchange(c, bufio.NewReader(c), "noisy", fmt.Sprintf("/%d/%d", i, k), random(8<<10, uint64(i)))
				}()
				select {
				case <-end:
					c.Close()
					<-done
					return
				case <-done:
					c.Close()
				}
			}
		})
	}
	r.waitFor(10*time.Second, "the flood to be under way", func() bool { return int(came.Load()) >= n && r.stats().Channels >= 50 })
	<-time.After(time.Second) // what it costs to come is not what is measured
	return func() { close(end); work.Wait() }
}
