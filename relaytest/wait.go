package relaytest

import (
	"crypto/sha256"
	"sync"
	"testing"
	"time"
)

// Patience returns the longest time to wait for something that has no promised time: four times quiet, the
// time that it takes on an idle machine. For a promised time, use Limit instead.
func Patience(quiet time.Duration) time.Duration { return 4 * quiet }

// Until polls until the function ok returns true; it fails the test when Poll gives up.
func Until(t testing.TB, quiet time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Poll(quiet, ok) {
		t.Fatalf("waited %v or more in vain for %s", Patience(quiet), what)
	}
}

// Poll polls until the function ok returns true, and reports whether it did within Patience(quiet), or within
// Limit(quiet) on a machine that is so busy that this is longer. The pauses between polls grow, because ok may make a
// query, and tests that wait for seconds must not keep the machine busy.
func Poll(quiet time.Duration, ok func() bool) bool {
	begun := time.Now()
	for !ok() {
		passed := time.Since(begun)
		if passed > Patience(quiet) && passed > Limit(quiet, begun) {
			return ok()
		}
		time.Sleep(min(max(passed/10, 5*time.Millisecond), 100*time.Millisecond))
	}
	return true
}

// Limit returns the time that a test allows for an operation that began at the time begun. On an idle machine, this is
// twice the duration promised. The limit grows by the factor by which the machine has been slower than an idle one
// since then, and by twice the longest time in which this process got no CPU.
func Limit(promised time.Duration, begun time.Time) time.Duration {
	factor, longest := Slowdown(begun)
	return time.Duration(2*factor*float64(promised)) + 2*longest
}

// Slowdown measures the load of the machine since a moment. Twice a second a goroutine does a fixed piece of
// work of a few milliseconds. factor is the mean time of a piece, including its late start, divided by the
// time of the shortest piece since the process started; it is at least 1. longest is the longest time of a
// piece, or of a sleep of 50 ms between two pieces. The goroutine starts with the first call of Slowdown;
// earlier times are not measured. A package whose tests use Limit calls Slowdown in its TestMain.
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
			longest = max(longest, s.still)
		}
	}
	longest = max(longest, meter.still, time.Since(meter.looked)-meterLook)
	if under := time.Since(meter.last) - meterPause; under > meter.quick { // the current piece counts, too
		count(under)
	}
	if n == 0 && len(meter.samples) > 0 { // no piece has ended in the measured time, so the last one before it counts
		count(meter.samples[len(meter.samples)-1].took)
	}
	if n == 0 {
		return 1, longest
	}
	return max(1, float64(sum)/float64(n)/float64(meter.quick)), longest
}

const (
	// The measurement takes 0.8 % of a CPU in each process, half as much as with half the times. Shorter pieces
	// would often end before another program gets its turn, and so miss the load.
	meterPause = 500 * time.Millisecond // between two pieces of work
	meterLook  = 50 * time.Millisecond  // sleep within a pause; if it lasts longer, the process got no CPU
)

type sample struct {
	at    time.Time
	took  time.Duration
	still time.Duration // longest time without CPU in the pause before this piece of work
}

var meter struct {
	once    sync.Once
	mu      sync.Mutex
	quick   time.Duration // time of the shortest piece
	last    time.Time     // end of the last piece
	still   time.Duration // longest time without CPU since the end of the last piece
	looked  time.Time     // time of the last update of meter.still
	samples []sample      // samples of the last ten minutes or more
}

func startMeter() {
	meter.quick = time.Hour
	for range 10 {
		took := work()
		meter.quick = min(meter.quick, took)
	}
	meter.last = time.Now()
	meter.looked = meter.last
	go func() {
		for {
			begun := time.Now()
			due, still := begun.Add(meterPause), time.Duration(0)
			for begun.Before(due) {
				look := min(meterLook, due.Sub(begun))
				time.Sleep(look)
				now := time.Now()
				still, begun = max(still, now.Sub(begun)-look), now
				meter.mu.Lock()
				meter.still, meter.looked = still, now
				meter.mu.Unlock()
			}
			late := time.Since(due)
			took := work()
			meter.mu.Lock()
			meter.quick = min(meter.quick, took)
			meter.last = time.Now()
			meter.still, meter.looked = 0, meter.last
			meter.samples = append(meter.samples, sample{meter.last, took + late, still})
			if len(meter.samples) > 3000 {
				meter.samples = meter.samples[500:]
			}
			meter.mu.Unlock()
		}
	}()
}

// work does the fixed piece of work and returns its time.
func work() time.Duration {
	begun := time.Now()
	block := make([]byte, 64<<10)
	for range 80 {
		sum := sha256.Sum256(block)
		copy(block, sum[:])
	}
	return time.Since(begun)
}
