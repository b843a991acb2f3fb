package link

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Workers runs functions in reusable goroutines. A new goroutine begins with a small stack, which has
// to grow when the function calls into SSH. A request runs several such functions, and without Workers
// the growing stacks took 3 to 10 % of its CPU time. The methods may be called concurrently.
type Workers struct {
	mu       sync.Mutex
	idle     []chan func() // one channel for each waiting goroutine; the last one is used next
	unused   int           // how many elements at the start of idle have waited since the last call of endUnused
	trimming bool          // the timer trim is running
	trim     *time.Timer
	closed   bool

	left atomic.Int64
}

// Left returns the number of calls into x/crypto that have not returned although their connection has
// ended.
func (w *Workers) Left() int64 { return w.left.Load() }

const (
	maxIdleWorkers = 64
	workerIdleTime = time.Second // least time for which a goroutine waits before it ends
)

// NewWorkers returns Workers; it starts no goroutine.
func NewWorkers() *Workers {
	w := &Workers{}
	w.trim = time.AfterFunc(time.Hour, w.endUnused)
	w.trim.Stop()
	return w
}

// Go runs f in a goroutine and does not wait for it.
func (w *Workers) Go(f func()) {
	w.mu.Lock()
	n := len(w.idle) - 1
	if n < 0 {
		w.mu.Unlock()
		go w.run(f)
		return
	}
	next := w.idle[n]
	w.idle = w.idle[:n]
	w.unused = min(w.unused, n)
	w.mu.Unlock()
	next <- f
}

func (w *Workers) run(f func()) {
	next := make(chan func(), 1)
	for ; f != nil; f = <-next {
		f()
		w.mu.Lock()
		if w.closed || len(w.idle) == maxIdleWorkers {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, next)
		if !w.trimming {
			w.trimming = true
			w.trim.Reset(workerIdleTime)
		}
		w.mu.Unlock()
	}
}

// endUnused ends the goroutines that have had no work since its last call.
func (w *Workers) endUnused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, next := range w.idle[:w.unused] {
		next <- nil
	}
	w.idle = slices.Delete(w.idle, 0, w.unused)
	w.unused = len(w.idle)
	if w.trimming = w.unused > 0; w.trimming {
		w.trim.Reset(workerIdleTime)
	}
}

// Close ends the idle goroutines at once, and each busy one after its function.
func (w *Workers) Close() {
	w.mu.Lock()
	w.closed, w.unused = true, len(w.idle)
	w.mu.Unlock()
	w.endUnused()
}
