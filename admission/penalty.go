package admission

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// The penalties, as in OpenSSH's PerSourcePenalties. A connection without a login adds to the penalty
// of its source. From a penalty of 15 s on, the source is rejected until the penalty has expired. A penalty is
// at most 10 minutes.
const (
	PenaltyRefused = 5 * time.Second  // a login was refused
	PenaltyNothing = time.Second      // the client did not try to log in
	PenaltySlow    = 10 * time.Second // the client did not log in within the time limit
	penaltyMin     = 15 * time.Second
	penaltyMax     = 10 * time.Minute
)

// maxPenalties bounds the number of sources with penalties. While the table is full, further sources
// get no penalties. An attacker with 32 768 addresses can therefore avoid penalties; rejecting
// innocent sources would be worse.
const maxPenalties = 32768

// penalty is the state of one source.
type penalty struct {
	until   time.Time
	keptOut bool // the penalty has reached penaltyMin, and has not expired since
}

// Penalties rejects sources of failed logins for a while. The code that uses it decides which sources are
// exempt. It is safe for concurrent use.
type Penalties struct {
	now func() time.Time

	mu       sync.Mutex
	bySource map[netip.Prefix]penalty
	swept    time.Time // time when expired penalties were last removed
}

// NewPenalties returns an empty table; now is its clock.
func NewPenalties(now func() time.Time) *Penalties {
	return &Penalties{now: now, bySource: map[netip.Prefix]penalty{}}
}

// Add adds the duration cost to the penalty of a source. If the source is rejected from now on, Add returns
// for how long; 0 = the source is not rejected, or was rejected before.
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

// Left returns the time for which a source is still rejected; 0 if it is not rejected.
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
