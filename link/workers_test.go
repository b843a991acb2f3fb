package link

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWorkers: functions that run one after another share a goroutine, and functions that run together do not
// wait for each other. Idle goroutines are bounded, and end.
func TestWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewWorkers()
		ids := map[string]bool{}
		for range 10 {
			done := make(chan string)
			w.Go(func() { done <- goroutineID() })
			ids[<-done] = true
			synctest.Wait()
		}
		if len(ids) != 1 {
			t.Errorf("%d goroutines ran functions that came one after another, want 1", len(ids))
		}
		var all sync.WaitGroup
		meet := make(chan bool)
		all.Add(2 * maxIdleWorkers)
		for range 2 * maxIdleWorkers {
			w.Go(func() {
				defer all.Done()
				<-meet
			})
		}
		// If a function waits for another one, the test hangs here, and synctest reports it.
		close(meet)
		all.Wait()
		synctest.Wait()
		if n := idleWorkers(w); n != maxIdleWorkers {
			t.Errorf("%d goroutines wait, want %d", n, maxIdleWorkers)
		}
		time.Sleep(2 * workerIdleTime)
		synctest.Wait()
		if n := idleWorkers(w); n != 0 {
			t.Errorf("%d goroutines wait after %v without work", n, 2*workerIdleTime)
		}
		hold := make(chan bool)
		w.Go(func() { <-hold })
		w.Go(func() {})
		synctest.Wait()
		w.Close()
		// synctest fails the test if a goroutine is left.
		close(hold)
	})
}

// idleWorkers returns the number of idle goroutines of w.
func idleWorkers(w *Workers) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.idle)
}

// goroutineID returns the first line of the stack, which names the goroutine.
func goroutineID() string {
	stack := make([]byte, 32)
	return string(stack[:runtime.Stack(stack, false)])
}
