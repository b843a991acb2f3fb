package sshgate

import (
	"context"
	"sync"
)

// maxQueuedRequests is how many global requests may wait for their answer. OpenSSH sends
// one for each -R, all at once.
const maxQueuedRequests = 256

// requestQueue runs jobs one after another, in the order in which they were posted. Its
// goroutine runs while there are jobs: those ask the store, which makes its stack grow, and
// most connections have none for hours.
type requestQueue struct {
	ctx      context.Context     // no job is begun after its end
	spawn    func(f func()) bool // starts the goroutine; false when the connection has ended
	overflow func()              // called when too many jobs wait; it has to end ctx

	mu      sync.Mutex
	jobs    []func()
	running bool
}

// post adds a job and never blocks. More than maxQueuedRequests end the connection.
func (m *requestQueue) post(job func()) {
	m.mu.Lock()
	full, start := len(m.jobs) >= maxQueuedRequests, !m.running
	if !full {
		m.jobs, m.running = append(m.jobs, job), true
	}
	m.mu.Unlock()
	switch {
	case full:
		m.overflow()
	case start:
		m.spawn(m.run)
	}
}

// busy tells whether a request waits or runs.
func (m *requestQueue) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// next takes a job, nil when run has to end.
func (m *requestQueue) next() (job func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running = len(m.jobs) > 0 && m.ctx.Err() == nil; !m.running {
		m.jobs = nil
		return nil
	}
	job = m.jobs[0]
	m.jobs[0] = nil
	m.jobs = m.jobs[1:]
	return job
}

func (m *requestQueue) run() {
	for job := m.next(); job != nil; job = m.next() {
		job()
	}
}
