package conformance

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"relay/store/pgtest"
)

// TestFaultSpool stops Postgres and continues to send requests to an online and to an offline alias. Callers
// see no failure. When Postgres is back, all requests are stored in order, even if relayd was killed during
// the outage.
func TestFaultSpool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		away func(*pgtest.Server) error
		back func(*pgtest.Server) error
		kill bool
	}{
		"postgres killed":            {(*pgtest.Server).Kill, (*pgtest.Server).Restart, false},
		"postgres frozen":            {(*pgtest.Server).Freeze, (*pgtest.Server).Thaw, false},
		"postgres and relayd killed": {(*pgtest.Server).Kill, (*pgtest.Server).Restart, true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			pg, databaseURL := ownPostgres(t)
			r := startRelay(t, databaseURL)
			r.alias("asleep")
			r.autossh("awake", localServer(t))
			l := startLoad(r, "awake", 4, func(l *load) { l.pause = size(100*time.Millisecond, 20*time.Millisecond) })
			l.more(50, 30*time.Second)
			before := l.codes503()
			if err := c.away(pg); err != nil {
				t.Fatal(err)
			}
			queued := size(60, 500)
			accepted := queueAll(r, queued)
			<-time.After(size(2*time.Second, 10*time.Second))
			degraded := false
			for begun := time.Now(); !degraded && time.Since(begun) < bound(5*time.Second); <-time.After(50 * time.Millisecond) {
				degraded = r.degraded()
			}
			spool := r.stats().SpoolBytes
			failed := l.codes503() - before
			if c.kill {
				l.end()
				r.stop(syscall.SIGKILL)
			}
			if err := c.back(pg); err != nil {
				t.Fatal(err)
			}
			if c.kill {
				r.start()
			}
			restored, back := time.Now(), time.Duration(0)
			if !c.kill {
				back = l.recovery(restored)
			}
			r.waitFor(30*time.Second, "the spool to be empty", func() bool { return r.stats().SpoolBytes == 0 })
			l.end()
			v, disorder, found := l.check(t), 0, r.events("asleep", "")
			for i, e := range found { // the list has the newest first
				if i > 0 && e.Path > found[i-1].Path {
					disorder++
				}
			}
			figure(t, "%s: 503 while it was away %d, spool %d KiB, queued %d of %d, stored %d, out of order %d; %v, by status %v, longest wait %v, back after %v",
				name, failed, spool>>10, accepted, queued, len(found), disorder, v, l.codes, l.longest.Round(10*time.Millisecond), back.Round(10*time.Millisecond))
			if !v.ok() || failed > 0 || spool == 0 || !degraded || accepted != queued || len(found) != queued || disorder > 0 {
				t.Errorf("%v, failed %d, spool %d, degraded %v, queued %d, stored %d, disorder %d", v, failed, spool, degraded, accepted, len(found), disorder)
			}
			if l.longest > bound(outageAnswer) || back > bound(5*time.Second) {
				t.Errorf("a caller waited %v, full service took %v", l.longest, back)
			}
		})
	}
}

// queueAll sends n events to the offline alias and counts the requests that were queued.
func queueAll(r *relayServer, n int) (accepted int) {
	r.t.Helper()
	for i := range n {
		if status, _, _ := r.call("asleep", queuePath(i), "event"); status == 202 {
			accepted++
		}
	}
	return accepted
}

func (l *load) codes503() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.codes[503] + l.broken
}

// TestFaultSpoolFull lets the spool become full. After that, callers get 503 with Retry-After, and their
// requests are not forwarded. All requests that were answered with 200 are stored.
func TestFaultSpoolFull(t *testing.T) {
	t.Parallel()
	pg, databaseURL := ownPostgres(t)
	r := startRelay(t, databaseURL, "RELAY_SPOOL_LIMIT=1MiB")
	var forwarded atomic.Int32
	r.tunnel("full", serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		forwarded.Add(1)
	}))
	if status, body, _ := r.call("full", "/before", "x"); status != 200 {
		t.Fatalf("answered %d %s", status, body)
	}
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	codes, answered := map[string]int{}, map[string]bool{"/before": true}
	tail := int32(0)
	for i := range 60 {
		path := fmt.Sprintf("/full/%d", i)
		before := forwarded.Load()
		status, _, header := r.call("full", path, strings.Repeat("x", 64<<10))
		codes[fmt.Sprint(status, header.Get("Relay-Error"))]++
		if status == 200 {
			answered[path] = true
		} else {
			tail += forwarded.Load() - before
			if header.Get("Retry-After") == "" {
				t.Errorf("%d without Retry-After", status)
			}
		}
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(30*time.Second, "the spool to be empty", func() bool { return r.stats().SpoolBytes == 0 && r.ready() == 200 })
	missing := len(answered)
	for _, e := range r.events("full", "") {
		if answered[e.Path] {
			missing--
		}
	}
	figure(t, "spool of 1 MiB full: answers %v, forwarded although it was full %d, missing %d", codes, tail, missing)
	if codes["503store-unavailable"] == 0 || len(answered) < 4 || tail > 0 || missing > 0 {
		t.Errorf("answers %v, forwarded %d, missing %d", codes, tail, missing)
	}
}

// TestFaultSpoolLargeBodies sends bodies that are stored in parts while Postgres is down. Every answered
// request is stored and reached the local server, both with the same bytes. The local server got no
// incomplete request. Callers are refused only when the spool is more than half full.
func TestFaultSpoolLargeBodies(t *testing.T) {
	t.Parallel()
	const limit = 16 << 20
	pg, databaseURL := ownPostgres(t)
	r := startRelay(t, databaseURL, "RELAY_SPOOL_LIMIT=16MiB")
	var mu sync.Mutex
	whole, short := map[string][sha256.Size]byte{}, 0
	r.tunnel("large", serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			short++
			return
		}
		whole[req.URL.Path] = sha256.Sum256(body)
	}))
	if status, body, _ := r.call("large", "/before", "x"); status != 200 {
		t.Fatalf("answered %d %s", status, body)
	}
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	codes, wrong, early, answered := map[string]int{}, 0, 0, map[string]int{}
	for i := range 30 {
		n := []int{300 << 10, 1 << 20}[i%2]
		path, body := fmt.Sprintf("/large/%d", i), strings.Repeat(string(rune('a'+i%26)), n)
		status, _, header := r.call("large", path, body)
		codes[fmt.Sprint(status, header.Get("Relay-Error"))]++
		if status != 200 {
			if r.stats().SpoolBytes < limit/2 {
				early++
			}
			continue
		}
		answered[path] = n
		mu.Lock()
		if whole[path] != sha256.Sum256([]byte(body)) {
			wrong++
		}
		mu.Unlock()
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(30*time.Second, "the spool to be empty", func() bool { return r.stats().SpoolBytes == 0 && r.ready() == 200 })
	missing := len(answered)
	for _, e := range r.events("large", "") {
		if answered[e.Path] > 0 {
			missing--
		}
	}
	mu.Lock()
	defer mu.Unlock()
	figure(t, "spool of 16 MiB, bodies of 300 KiB and 1 MiB: answers %v, with other bytes %d, cut short %d, refused before it was full %d, missing %d",
		codes, wrong, short, early, missing)
	if len(answered) < 10 || codes["503store-unavailable"] == 0 || wrong+short+early+missing > 0 {
		t.Errorf("answers %v, with other bytes %d, cut short %d, refused early %d, missing %d", codes, wrong, short, early, missing)
	}
}
