package sshgate

import (
	"net/netip"
	"sync"
	"time"
)

// The penalties of OpenSSH's PerSourcePenalties: what a connection without a login adds
// to the penalty of its source. The source is kept out from penaltyMin on, until the
// penalty has run down.
const (
	penaltyRefused = 5 * time.Second  // a login was refused
	penaltyNothing = time.Second      // no login was tried
	penaltySlow    = 10 * time.Second // the time for the login ran out
	penaltyMin     = 15 * time.Second
	penaltyMax     = 10 * time.Minute
)

// penalty is the penalty for a connection that ended like this.
func (f loginResult) penalty() time.Duration {
	switch f {
	case resultNoAttempt:
		return penaltyNothing
	case resultRefused:
		return penaltyRefused
	case resultTimeout:
		return penaltySlow
	}
	return 0
}

// maxPenalties is how many sources are remembered. While the table is full, further
// sources get no penalty, rather than sources that did nothing being kept out: an
// attacker with 32 768 addresses can use that.
const maxPenalties = 32768

// penalty is the state of one source.
type penalty struct {
	until   time.Time
	keptOut bool // it has reached penaltyMin, and has not run down since
}

// penalties keeps sources of failed logins out for a while. It does not know which
// sources are exempt. Safe for concurrent use.
type penalties struct {
	now func() time.Time

	mu       sync.Mutex
	bySource map[netip.Prefix]penalty
	swept    time.Time
}

func newPenalties() *penalties {
	return &penalties{now: time.Now, bySource: map[netip.Prefix]penalty{}}
}

// add adds to the penalty of a source. It returns how long the source is kept out, 0
// when it is not or already was.
func (p *penalties) add(source netip.Prefix, cost time.Duration) (keptOut time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	x, known := p.bySource[source]
	if !known && len(p.bySource) >= maxPenalties && !p.sweep(now) {
		return 0
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

// left returns how long a source is still kept out; 0 when it is not.
func (p *penalties) left(source netip.Prefix) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, known := p.bySource[source]
	if !known || !x.keptOut {
		return 0
	}
	return max(0, x.until.Sub(p.now()))
}

// forgive removes the penalty of a source, because one of its logins succeeded.
func (p *penalties) forgive(source netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.bySource, source)
}

// sources counts the sources that are kept out.
func (p *penalties) sources() (n int) {
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

// sweep removes penalties that have run down, at most once a second, and returns
// whether there is space for another source now. The caller holds mu.
func (p *penalties) sweep(now time.Time) bool {
	if now.Sub(p.swept) < time.Second {
		return false
	}
	p.swept = now
	for source, x := range p.bySource {
		if !x.until.After(now) {
			delete(p.bySource, source)
		}
	}
	return len(p.bySource) < maxPenalties
}
