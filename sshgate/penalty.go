package sshgate

import (
	"net/netip"
	"sync"
	"time"
)

// What a source pays for a connection that led to no login, and from when to when
// it is kept out: the figures that OpenSSH's server uses.
const (
	penaltyRefused = 5 * time.Second  // a login was refused
	penaltyNothing = time.Second      // no login was tried
	penaltySlow    = 10 * time.Second // the time for the login ran out
	penaltyFrom    = 15 * time.Second // less is only remembered
	penaltyMost    = 10 * time.Minute
)

// cost is what a source pays for a connection that ended like this.
func (f fault) cost() time.Duration {
	switch f {
	case faultNothing:
		return penaltyNothing
	case faultRefused:
		return penaltyRefused
	case faultSlow:
		return penaltySlow
	}
	return 0
}

// maxPenalties is how many sources are remembered. When there are more, new ones go
// unpunished: nobody who did nothing is kept out instead.
const maxPenalties = 32768

// penalty is what a source still has to pay.
type penalty struct {
	until time.Time
	shut  bool // it was enough to keep the source out, until it is paid
}

// penalties are what failing sources pay. Loopback never does; its owner sees to
// that. Safe for concurrent use.
type penalties struct {
	now func() time.Time

	mu    sync.Mutex
	by    map[netip.Prefix]penalty
	swept time.Time
}

func newPenalties() *penalties {
	return &penalties{now: time.Now, by: map[netip.Prefix]penalty{}}
}

// add makes a source pay.
func (p *penalties) add(from netip.Prefix, cost time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	old, known := p.by[from]
	if !known && len(p.by) >= maxPenalties && !p.sweep(now) {
		return
	}
	until := old.until
	if until.Before(now) {
		until, old.shut = now, false
	}
	if until = until.Add(cost); until.Sub(now) > penaltyMost {
		until = now.Add(penaltyMost)
	}
	p.by[from] = penalty{until: until, shut: old.shut || until.Sub(now) >= penaltyFrom}
}

// left is how long a source is kept out; 0 = it may come in.
func (p *penalties) left(from netip.Prefix) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, known := p.by[from]
	if !known || !x.shut {
		return 0
	}
	return max(0, x.until.Sub(p.now()))
}

// forgive forgets what a source had to pay, because a login of it succeeded.
func (p *penalties) forgive(from netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.by, from)
}

// shutOut is how many sources are kept out.
func (p *penalties) shutOut() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for _, x := range p.by {
		if x.shut && x.until.After(now) {
			n++
		}
	}
	return n
}

// sweep forgets what is paid, at most once a second, and tells whether there is
// room now. mu is held.
func (p *penalties) sweep(now time.Time) bool {
	if now.Sub(p.swept) < time.Second {
		return false
	}
	p.swept = now
	for from, x := range p.by {
		if !x.until.After(now) {
			delete(p.by, from)
		}
	}
	return len(p.by) < maxPenalties
}
