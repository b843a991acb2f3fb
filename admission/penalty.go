package admission

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// The penalties of OpenSSH's PerSourcePenalties: what a connection without a login adds
// to the penalty of its source. The source is rejected from 15 s on, until the penalty has
// run down; it is 10 minutes at most.
const (
	PenaltyRefused = 5 * time.Second  // a login was refused
	PenaltyNothing = time.Second      // no login was tried
	PenaltySlow    = 10 * time.Second // the time for the login ran out
	penaltyMin     = 15 * time.Second
	penaltyMax     = 10 * time.Minute
)

// maxPenalties bounds the number of sources with penalties. While the table is full, further sources
// get none, so an attacker with 32 768 addresses can avoid penalties; rejecting innocent sources would
// be worse.
const maxPenalties = 32768

// penalty is the state of one source.
type penalty struct {
	until   time.Time
	keptOut bool // it has reached penaltyMin, and has not run down since
}

// Penalties rejects sources of failed logins for a while. The caller knows which sources are exempt.
// Safe for concurrent use.
type Penalties struct {
	now func() time.Time

	mu       sync.Mutex
	bySource map[netip.Prefix]penalty
	swept    time.Time // when those that have run down were removed
}

// NewPenalties returns an empty table; now is its clock.
func NewPenalties(now func() time.Time) *Penalties {
	return &Penalties{now: now, bySource: map[netip.Prefix]penalty{}}
}

// Add adds to the penalty of a source. It returns how long the source is rejected, 0
// when it is not or already was.
func (p *Penalties) Add(source netip.Prefix, cost time.Duration) (keptOut time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	x, known := p.bySource[source]
	if !known && len(p.bySource) >= maxPenalties {
		if now.Sub(p.swept) >= time.Second {
			p.swept = now
			maps.DeleteFunc(p.bySource, func(_ netip.Prefix, x penalty) bool { return !x.until.After(now) })
		}
		if len(p.bySource) >= maxPenalties {
			return 0
		}
	}
	if x.until.Before(now) {
		x = penalty{until: now}
	}
	if x.until = x.until.Add(cost); x.until.Sub(now) > penaltyMax {
		x.until = now.Add(penaltyMax)
	}
	if left := x.until.Sub(now); left >= penaltyMin && !x.keptOut {
		x.keptOut, keptOut = true, left
	}
	p.bySource[source] = x
	return keptOut
}

// Left returns how long a source is still rejected; 0 when it is not.
func (p *Penalties) Left(source netip.Prefix) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, known := p.bySource[source]
	if !known || !x.keptOut {
		return 0
	}
	return max(0, x.until.Sub(p.now()))
}

// Forgive removes the penalty of a source, because one of its logins succeeded.
func (p *Penalties) Forgive(source netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.bySource, source)
}

// Sources counts the sources that are rejected.
func (p *Penalties) Sources() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for _, x := range p.bySource {
		if x.keptOut && x.until.After(now) {
			n++
		}
	}
	return n
}
