package relaytest

import (
	"crypto/sha256"
	"sync"
	"testing"
	"time"
)

// Patience is how long a wait for an event without a promised time may take: four times
// what a quiet machine needs. A promised time is measured and compared with Limit.
func Patience(quiet time.Duration) time.Duration { return 4 * quiet }

// Until polls until ok holds; after Patience(quiet) it fails the test.
func Until(t testing.TB, quiet time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Poll(quiet, ok) {
		t.Fatalf("waited %v in vain for %s", Patience(quiet), what)
	}
}

// Poll polls until ok holds and tells whether that happened within Patience(quiet). The pause
// grows with the time that has passed: a condition may be a query, and tests that wait for
// seconds would otherwise keep the machine busy.
func Poll(quiet time.Duration, ok func() bool) bool {
	begun := time.Now()
	for !ok() {
		passed := time.Since(begun)
		if passed > Patience(quiet) {
			return ok()
		}
		time.Sleep(min(max(passed/10, 5*time.Millisecond), 100*time.Millisecond))
	}
	return true
}

// Limit is what a test allows for something that is promised to take at most promised and
// began at begun: twice the promise on a machine with nothing else to do. It grows by the
// factor by which the machine was slower since then, and by twice the longest time in
// which the machine let this process do nothing.
func Limit(promised time.Duration, begun time.Time) time.Duration {
	factor, longest := Slowdown(begun)
	return time.Duration(2*factor*float64(promised)) + 2*longest
}

// Slowdown tells how busy the machine was since a moment. Every 250 ms a goroutine does a
// fixed piece of work of a few milliseconds. factor is the mean time of a piece, its late
// start included, divided by the shortest one since the process started, so it is 1 at
// least; longest is the longest time of a piece. The goroutine starts with Main or with the
// first call, and nothing is known of the time before.
func Slowdown(since time.Time) (factor float64, longest time.Duration) {
	meter.once.Do(startMeter)
	meter.mu.Lock()
	defer meter.mu.Unlock()
	sum, n := time.Duration(0), 0
	count := func(took time.Duration) {
		sum, n, longest = sum+took, n+1, max(longest, took)
	}
	for _, s := range meter.samples {
		if s.at.After(since) {
			count(s.took)
		}
	}
	if under := time.Since(meter.last) - meterPause; under > meter.quick { // the piece under way counts too
		count(under)
	}
	if n == 0 && len(meter.samples) > 0 { // too short a time for a piece
		count(meter.samples[len(meter.samples)-1].took)
	}
	if n == 0 {
		return 1, 0
	}
	return max(1, float64(sum)/float64(n)/float64(meter.quick)), longest
}

const meterPause = 250 * time.Millisecond

type sample struct {
	at   time.Time
	took time.Duration
}

var meter struct {
	once    sync.Once
	mu      sync.Mutex
	quick   time.Duration // the shortest piece
	last    time.Time     // end of the last piece
	samples []sample      // of the last ten minutes or more
}

func startMeter() {
	meter.quick = time.Hour
	for range 10 {
		took := work()
		meter.quick = min(meter.quick, took)
	}
	meter.last = time.Now()
	go func() {
		for {
			due := time.Now().Add(meterPause)
			time.Sleep(meterPause)
			late := time.Since(due)
			took := work()
			meter.mu.Lock()
			meter.quick = min(meter.quick, took)
			meter.last = time.Now()
			meter.samples = append(meter.samples, sample{meter.last, took + late})
			if len(meter.samples) > 3000 {
				meter.samples = meter.samples[500:]
			}
			meter.mu.Unlock()
		}
	}()
}

// work is the fixed piece of work.
func work() time.Duration {
	begun := time.Now()
	block := make([]byte, 64<<10)
	for range 80 {
		sum := sha256.Sum256(block)
		copy(block, sum[:])
	}
	return time.Since(begun)
}
