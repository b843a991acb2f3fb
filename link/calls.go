package link

import (
	"sync"
	"sync/atomic"
	"time"
)

// EndTime is the longest time for which the end of a connection waits for its goroutines.
const EndTime = time.Second

// calls counts the goroutines of one connection that may be inside x/crypto. A call into x/crypto may
// never return. An example is an OpenChannel that begins while the connection ends: x/crypto has then
// forgotten its channels, and nothing ends the call. A WaitGroup over such goroutines would wait
// forever, so the end of the connection waits for them for a limited time and then counts the remaining
// ones.
type calls struct {
	left *atomic.Int64 // number of goroutines that did not return in time after the end of their connection

	mu      sync.Mutex
	running int64
	ended   bool
	given   bool          // the wait is over; left counts the goroutines that still run
	none    chan struct{} // made by end, closed when no goroutine is running
}

// begin counts one goroutine, which calls done at its end. It returns false if the connection has
// ended.
func (g *calls) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.running++
	return true
}

// done stops counting a goroutine that begin has counted.
func (g *calls) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	switch {
	case g.given:
		g.left.Add(-1)
	case g.ended && g.running == 0:
		close(g.none)
	}
}

// end makes begin return false from now on. It is called once, before wait.
func (g *calls) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended, g.none = true, make(chan struct{})
	if g.running == 0 {
		close(g.none)
	}
}

// wait waits until no counted goroutine runs, at most for the time limit. Goroutines that still run then are
// added to the counter left.
func (g *calls) wait(limit time.Duration) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-g.none:
		return
	case <-late.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running > 0 {
		g.given = true
		g.left.Add(g.running)
	}
}
