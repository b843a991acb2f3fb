package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// outageAnswer is the longest time for an answer to a caller while the store is down.
const outageAnswer = 5 * time.Second

// TestFaultPostgresKilled kills every process of Postgres under load. Callers get answers within 5 s all the
// time, relayd recovers when Postgres is back, and no answered request is missing.
func TestFaultPostgresKilled(t *testing.T) {
	t.Parallel()
	onlyInFull(t, "TestFaultSpool")
	pg, databaseURL := ownPostgres(t)
	r := startRelay(t, databaseURL, "RELAY_SPOOL_LIMIT=1GiB") // 5,000 requests a second would fill the default spool within 8 s
	r.autossh("outage", localServer(t))
	l := startLoad(r, "outage", 16, gently)
	var back []time.Duration
	for range size(1, 3) {
		l.more(200, 30*time.Second)
		if err := pg.Kill(); err != nil {
			t.Fatal(err)
		}
		<-time.After(size(2*time.Second, 10*time.Second))
		if err := pg.Restart(); err != nil {
			t.Fatal(err)
		}
		back = append(back, l.recovery(time.Now()))
	}
	l.finish(t, fmt.Sprintf("Postgres killed x%d, back to full service after %v", len(back), rounded(back)))
	for _, d := range back {
		if d > bound(5*time.Second) {
			t.Errorf("full service took %v after Postgres was back", d)
		}
	}
}

// TestFaultPostgresFrozen freezes Postgres under load, so its sockets stay open without an answer. Callers
// are answered within 5 s, the tunnel stays, memory is bounded, /readyz reports the outage, and relayd
// recovers.
func TestFaultPostgresFrozen(t *testing.T) {
	t.Parallel()
	onlyInFull(t, "TestFaultSpool")
	pg, databaseURL := ownPostgres(t)
	r := startRelay(t, databaseURL, "RELAY_SPOOL_LIMIT=1GiB") // 5,000 requests a second would fill the default spool within 8 s
	r.autossh("outage", localServer(t))
	l := startLoad(r, "outage", 16, gently)
	l.more(500, 30*time.Second)
	before, most := r.stats().RSSBytes, int64(0)
	if err := pg.Freeze(); err != nil {
		t.Fatal(err)
	}
	frozen := size(4*time.Second, 20*time.Second)
	said := time.Duration(0)
	begun := time.Now()
	for ; time.Since(begun) < frozen || said == 0 && time.Since(begun) < bound(5*time.Second); <-time.After(200 * time.Millisecond) {
		most = max(most, r.stats().RSSBytes)
		if said == 0 && (r.degraded() || r.ready() == 503) {
			said = time.Since(begun)
		}
	}
	tunnels := r.stats().Tunnels
	frozen = time.Since(begun)
	if err := pg.Thaw(); err != nil {
		t.Fatal(err)
	}
	back := l.recovery(time.Now())
	grown := (most - before) >> 20
	l.finish(t, fmt.Sprintf("Postgres frozen %v: memory grew %d MiB, /readyz says so after %v, tunnels up %d, back after %v",
		frozen.Round(100*time.Millisecond), grown, said.Round(100*time.Millisecond), tunnels, rounded([]time.Duration{back})[0]))
	switch {
	case grown > memory(t, 32+96): // up to a heap of 96 MiB, relayd lets Go collect no garbage
		t.Errorf("memory grew by %d MiB", grown)
	case back > bound(5*time.Second):
		t.Errorf("full service took %v after Postgres went on", back)
	case said == 0 || said > bound(5*time.Second):
		t.Errorf("/readyz said so after %v", said)
	case tunnels != 1:
		t.Errorf("%d tunnels were up", tunnels)
	}
}

// recovery waits until the load has run for a second without a failure. It returns the time from the
// parameter since to the last failure; 0 = there was no failure after since.
func (l *load) recovery(since time.Time) time.Duration {
	l.r.t.Helper()
	var last time.Time
	l.r.waitFor(30*time.Second, "full service", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		last = l.lastFail
		return time.Since(last) > time.Second && time.Since(since) > time.Second && time.Since(l.lastGood) < time.Second
	})
	return max(0, last.Sub(since))
}

// finish stops the load and waits until the spool is empty. It prints a figure, which begins with the text what
// and has the counts of the load, and fails the test if a promise for outages was broken.
func (l *load) finish(t *testing.T, what string) {
	t.Helper()
	l.end()
	begun, left := time.Now(), l.r.stats().SpoolBytes
	l.r.waitFor(120*time.Second, "the spool to be empty", func() bool { return l.r.stats().SpoolBytes == 0 })
	drained := time.Since(begun)
	v := l.check(t)
	figure(t, "%s; spool %d KiB at the end of the load, empty after %v; %v, longest wait %v, by status %v, without answer %d",
		what, left>>10, drained.Round(100*time.Millisecond), v, l.longest.Round(10*time.Millisecond), l.codes, l.broken)
	switch {
	case !v.ok():
		t.Errorf("lost: %v", v)
	case l.longest > bound(outageAnswer):
		t.Errorf("a caller waited %v", l.longest)
	case l.codes[503] > 0 || l.broken > 0:
		t.Errorf("answers 503 %v, %d callers without answer: an outage of Postgres is none of callers", l.refused, l.broken)
	case l.r.ready() != 200:
		t.Errorf("/readyz is %d at the end", l.r.ready())
	case !strings.Contains(l.r.log.String(), "stored again") && !strings.Contains(l.r.log.String(), "the spool is empty"):
		t.Error("the log does not say that the store is back")
	}
}

func rounded(ds []time.Duration) []time.Duration {
	for i := range ds {
		ds[i] = ds[i].Round(100 * time.Millisecond)
	}
	return ds
}
