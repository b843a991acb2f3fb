package api

import (
	"sync"
	"sync/atomic"
	"time"

	"relay"
)

// places bound how many calls stay open at once, per account and in all. They are
// safe for concurrent use.
type places struct {
	name    string
	refused atomic.Int64

	mu    sync.Mutex
	byKey map[string]int // those with a call open
	all   int
}

func newPlaces(name string) *places { return &places{name: name, byKey: map[string]int{}} }

// take gives a place, which leave gives back once; rate-limited when all are taken.
func (p *places) take(key string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey[key] >= openPerAccount || p.all >= openInAll {
		p.refused.Add(1)
		e := relay.Errorf(relay.CodeRateLimited, "too many of these calls are open: %d at once are allowed; end one first", openPerAccount)
		e.RetryAfter = time.Second
		return nil, &limited{refused: e, name: p.name, rate: Rate{N: openPerAccount, Per: time.Second}}
	}
	p.byKey[key]++
	p.all++
	return sync.OnceFunc(func() { p.leave(key) }), nil
}

func (p *places) leave(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.byKey[key]--; p.byKey[key] == 0 {
		delete(p.byKey, key)
	}
}

func (p *places) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}
