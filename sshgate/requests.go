package sshgate

import (
	"context"
	"sync"
)

// maxQueuedRequests is how many global requests may wait for their answer. OpenSSH sends
// one for each -R, all at once.
const maxQueuedRequests = 256

// requestQueue runs jobs one after another, in the order in which they were posted.
type requestQueue struct {
	mu      sync.Mutex
	jobs    []func()
	running bool
	full    bool
	wake    chan struct{}
}

func newRequestQueue() *requestQueue { return &requestQueue{wake: make(chan struct{}, 1)} }

// post adds a job and never blocks. More than maxQueuedRequests end the connection.
func (m *requestQueue) post(job func()) {
	m.mu.Lock()
	if len(m.jobs) < maxQueuedRequests {
		m.jobs = append(m.jobs, job)
	} else {
		m.full = true
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// busy tells whether a request waits or runs.
func (m *requestQueue) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running || len(m.jobs) > 0
}

func (m *requestQueue) next() (job func(), full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = false
	if m.full || len(m.jobs) == 0 {
		return nil, m.full
	}
	job = m.jobs[0]
	m.jobs[0] = nil
	m.jobs = m.jobs[1:]
	m.running = true
	return job, false
}

// run runs jobs until ctx ends. overflow is called when there were too many; it
// must end ctx.
func (m *requestQueue) run(ctx context.Context, overflow func()) {
	for ctx.Err() == nil {
		job, full := m.next()
		switch {
		case full:
			overflow()
			return
		case job != nil:
			job()
		default:
			select {
			case <-m.wake:
			case <-ctx.Done():
			}
		}
	}
}
