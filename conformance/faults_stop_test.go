package conformance

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestFaultGracefulStop stops relayd with 50 requests in progress. All of them are answered and stored, new
// requests are refused or told to retry, and the exit code is 0.
func TestFaultGracefulStop(t *testing.T) {
	t.Parallel()
	storesInFull(t, func(t *testing.T, databaseURL string) {
		const requests = 50
		took := size(time.Second, 5*time.Second)
		r := startRelay(t, databaseURL)
		var inside atomic.Int32
		let := make(chan struct{})
		r.tunnel("slowly", serveLocal(t, func(w http.ResponseWriter, req *http.Request) {
			inside.Add(1)
			select {
			case <-let:
			case <-req.Context().Done():
			}
			fmt.Fprint(w, "answer to "+req.URL.Path)
		}))
		var whole atomic.Int32
		var callers sync.WaitGroup
		for i := range requests {
			callers.Go(func() {
				path := fmt.Sprintf("/stop/%d", i)
				if status, body, _ := r.call("slowly", path, "x"); status == 200 && body == "answer to "+path {
					whole.Add(1)
				}
			})
		}
		r.waitFor(10*time.Second, "all requests to be under way", func() bool { return inside.Load() == requests })
		begun := time.Now()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			r.stop(syscall.SIGTERM)
		}()
		// Until the stop begins, relayd answers as usual, so the late requests are sent only after that.
		r.waitFor(10*time.Second, "the stop to begin", func() bool { return r.ready() != 200 })
		late := map[int]int{}
		for range 10 {
			<-time.After(20 * time.Millisecond)
			status, _, _ := r.call("slowly", "/late", "x")
			late[status]++
		}
		<-time.After(time.Until(begun.Add(took)))
		close(let)
		<-stopped
		ended, code := time.Since(begun), r.exit()
		callers.Wait()
		r.start()
		stored := len(r.events("slowly", "&state=delivered"))
		figure(t, "stop with requests under way for %v more: %d of %d answered whole, %d stored, exit %d after %v, late callers %v",
			took, whole.Load(), requests, stored, code, ended.Round(10*time.Millisecond), late)
		if whole.Load() != requests || stored != requests || code != 0 || ended > bound(15*time.Second) || late[200]+late[202] > 0 {
			t.Errorf("answered %d, stored %d, exit %d after %v, late callers %v", whole.Load(), stored, code, ended, late)
		}
	})
}

// TestFaultRollingRestart restarts relayd under a sender that retries after 503 and after a refused or closed
// connection. The sender gets no other error.
func TestFaultRollingRestart(t *testing.T) {
	t.Parallel()
	storesInFull(t, func(t *testing.T, databaseURL string) {
		r := startRelay(t, databaseURL)
		r.autossh("rolling", localServer(t))
		l := startLoad(r, "rolling", 4, func(l *load) { l.pause, l.retry = 40*time.Millisecond, true })
		restarts := size(3, 20)
		for range restarts {
			l.more(30, 30*time.Second)
			r.stop(syscall.SIGTERM)
			if code := r.exit(); code != 0 {
				t.Errorf("exit %d", code)
			}
			r.start()
		}
		l.more(30, 30*time.Second)
		l.end()
		v := l.check(t)
		final := 0
		for code, n := range l.codes {
			if code != 200 && code != 202 && code != 503 {
				final += n
			}
		}
		figure(t, "%d restarts under a retrying sender: %v, by status %v, no answer and sent again %d, errors that are not retriable %d",
			restarts, v, l.codes, l.broken, final)
		if !v.ok() || final > 0 || l.noRetry > 0 {
			t.Errorf("%v, not retriable %d, 503 without Retry-After %d", v, final, l.noRetry)
		}
	})
}
