package api

import (
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// concurrencyLimiter bound how many calls stay open at once, per account and in all. They are
// safe for concurrent use.
type concurrencyLimiter struct {
	name    string
	refused atomic.Int64

	mu    sync.Mutex
	byKey map[string]int // those with a call open
	total int
}

func newConcurrencyLimiter(name string) *concurrencyLimiter {
	return &concurrencyLimiter{name: name, byKey: map[string]int{}}
}

// acquire gives a place, which leave gives back once; rate-limited when all are taken.
func (p *concurrencyLimiter) acquire(key string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey[key] >= maxOpenPerAccount || p.total >= maxOpenTotal {
		p.refused.Add(1)
		e := relay.Errorf(relay.CodeRateLimited, "too many of these calls are open: %d at once are allowed; end one first", maxOpenPerAccount)
		e.RetryAfter = time.Second
		return nil, &rateLimitError{err: e, name: p.name, rate: Rate{N: maxOpenPerAccount, Per: time.Second}}
	}
	p.byKey[key]++
	p.total++
	return sync.OnceFunc(func() { p.release(key) }), nil
}

func (p *concurrencyLimiter) release(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if p.byKey[key]--; p.byKey[key] == 0 {
		delete(p.byKey, key)
	}
}

func (p *concurrencyLimiter) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
