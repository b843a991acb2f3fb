package sshgate

import (
	"sync"
	"sync/atomic"
)

// maxQueuedRequests is the largest number of global requests that wait for their answer. OpenSSH sends one
// for each -R, without waiting for replies.
const maxQueuedRequests = 256

// requestQueue runs the global requests of a connection, and the starts of its sessions, in the order
// in which they arrived.
type requestQueue struct {
	waiting atomic.Int64 // number of jobs that wait or are running

	mu   sync.Mutex
	last chan struct{} // closed when the most recently posted job has ended
}

// post runs the function job after all jobs that were posted before it. It never blocks. If there are already
// maxQueuedRequests jobs, it ends the connection instead.
func (c *conn) post(job func()) {
	q := &c.requests
	if q.waiting.Add(1) > maxQueuedRequests {
		c.closeFlooded("requests")
		return
	}
	done := make(chan struct{})
	q.mu.Lock()
	before := q.last
	q.last = done
	q.mu.Unlock()
	run := func() {
		defer close(done)
		defer q.waiting.Add(-1)
		if before != nil {
			select {
			case <-before:
			case <-c.Context().Done(): // the previous job may wait in x/crypto for ever
			}
		}
		if c.Context().Err() == nil {
			job()
		}
	}
	if !c.Go("request", run) { // the connection has ended, so the job will not run
		q.waiting.Add(-1)
		close(done)
	}
}

// RequestsPending implements shell.Conn.
func (c *conn) RequestsPending() bool { return c.requests.waiting.Load() > 0 }
