package conformance

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// arrivals are the paths of the requests to a local server, in order.
type arrivals struct {
	mu    sync.Mutex
	paths []string
}

func (a *arrivals) serve(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	a.mu.Lock()
	a.paths = append(a.paths, req.URL.Path)
	a.mu.Unlock()
	<-time.After(5 * time.Millisecond) // the delay lets a kill find a delivery in progress
	_, _ = io.WriteString(w, "done")
}

func (a *arrivals) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.paths)
}

// TestFaultQueueOverKill queues events while the tunnel is offline, and kills relayd before and during the
// delivery of the queue. Each event arrives, in order. If an event arrives twice, it has an interrupted
// attempt, which explains the first arrival.
func TestFaultQueueOverKill(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, databaseURL string) {
		events, kills := size(120, 500), size(1, 3)
		r := startRelay(t, databaseURL)
		r.alias("asleep")
		for i := range events {
			if status, body, _ := r.call("asleep", queuePath(i), "event"); status != 202 {
				t.Fatalf("event %d was answered %d %s", i, status, body)
			}
		}
		r.stop(syscall.SIGKILL)
		r.start()

		got := &arrivals{}
		r.autossh("asleep", serveLocal(t, got.serve))
		r.must(202, "POST", "/aliases/asleep/replay-queued", nil)
		for k := range kills {
			r.waitFor(30*time.Second, "a part of the queue to arrive", func() bool { return len(got.seen()) >= (k+1)*events/(kills+2) })
			r.stop(syscall.SIGKILL)
			r.start()
		}
		r.waitFor(60*time.Second, "the queue to be empty", func() bool { return len(r.events("asleep", "&state=delivered")) == events })
		checkQueue(t, r, got.seen(), events, kills+1)
	})
}

func queuePath(i int) string { return fmt.Sprintf("/queued/%04d", i) }

func checkQueue(t *testing.T, r *relayServer, seen []string, events, kills int) {
	t.Helper()
	interrupted := map[string]bool{}
	for _, e := range r.events("asleep", "") {
		for _, a := range r.event(e.ID).Attempts {
			if a.State == "interrupted" {
				interrupted[e.Path] = true
			}
		}
	}
	times := map[string]int{}
	last, disorder, unexplained := "", 0, 0
	for _, path := range seen {
		times[path]++
		switch {
		case interrupted[path]:
		case times[path] > 1:
			unexplained++
		case path < last:
			disorder++
		default:
			last = path
		}
	}
	figure(t, "%d queued over %d kills: arrived %d of %d, out of order %d, twice without an interrupted attempt %d, interrupted %d, deliveries %d",
		events, kills, len(times), events, disorder, unexplained, len(interrupted), len(seen))
	if len(times) != events || disorder > 0 || unexplained > 0 || len(interrupted) > kills {
		t.Errorf("the queue did not come through: interrupted %v", interrupted)
	}
}
