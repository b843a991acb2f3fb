package sshgate

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Bounds limit how many connections there may be, by how far they have come. A
// source is one IPv4 address or one IPv6 /64. 0 in any of them = its default.
type Bounds struct {
	Total            int // connections in all; 10 000
	Source           int // connections of one source, not of loopback; 1 024
	Account          int // connections of one account; half of Total
	Silent           int // connections that have not told their version yet; 512
	Handshakes       int // connections that have, and are not logged in yet; 1 024. From a quarter of it on some are dropped by chance
	SourceHandshakes int // silent ones and handshakes of one source, not of loopback; 128
	Waiting          int // people who wait for an approval or type a token; 256
	SourceWaiting    int // of one source; 8
}

func (b Bounds) withDefaults() Bounds {
	if b.Total <= 0 {
		b.Total = 10_000
	}
	for _, x := range []struct {
		n         *int
		otherwise int
	}{
		{&b.Source, 1024},
		{&b.Account, max(1, b.Total/2)},
		{&b.Silent, 512},
		{&b.Handshakes, 1024},
		{&b.SourceHandshakes, 128},
		{&b.Waiting, 256},
		{&b.SourceWaiting, 8},
	} {
		if *x.n <= 0 {
			*x.n = x.otherwise
		}
	}
	return b
}

// phase is how far a connection has come.
type phase int

const (
	phaseSilent    phase = iota // nothing was heard yet
	phaseHandshake              // its version is known
	phaseWaiting                // a person is awaited
	phaseIn                     // logged in
	phases
)

// Why a connection was dropped.
const (
	dropPenalty    = "penalty"
	dropTotal      = "total"
	dropSource     = "source"
	dropSilent     = "silent"
	dropHandshakes = "handshakes"
)

var dropReasons = []string{dropPenalty, dropTotal, dropSource, dropSilent, dropHandshakes}

// sourceOf is what is counted as one source.
func sourceOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a = a.Unmap(); a.Is6() {
		bits = 64
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no IP address: all such peers together
	}
	return p
}

// place is what a connection takes in the crowd. Only crowd reads and writes it.
type place struct {
	c     *conn
	from  netip.Prefix
	local bool // loopback, or a trusted proxy: everybody together, so no bound per source
	phase phase
	left  bool
	owner int64 // the account that it is counted for; 0 = none yet
}

// quiet is how long nothing was heard there; 0 = it waits for us.
func (p *place) quiet() time.Duration {
	if p.c == nil || p.c.asking.Load() > 0 {
		return 0
	}
	return p.c.sock.quiet()
}

// tally counts the connections of one source.
type tally [phases]int

func (t *tally) all() int   { return t[phaseSilent] + t[phaseHandshake] + t[phaseWaiting] + t[phaseIn] }
func (t *tally) early() int { return t[phaseSilent] + t[phaseHandshake] }

// crowd is everybody at the door. When there are too many who have not come in, it
// says who has to go: first those who say nothing, the oldest of the source that has
// most of them, so that neither many silent sockets nor few sources can keep a login
// out. Its methods are safe for concurrent use; they
// close nothing themselves.
type crowd struct {
	bounds Bounds
	dice   func() float64 // in [0, 1)

	mu       sync.Mutex
	total    tally
	sources  map[netip.Prefix]*tally
	accounts map[int64]int
	silent   []*place // oldest first
	shaking  []*place // oldest first
}

func newCrowd(b Bounds) *crowd {
	return &crowd{bounds: b.withDefaults(), dice: rand.Float64, sources: map[netip.Prefix]*tally{}, accounts: map[int64]int{}}
}

// arrive takes a new connection in. It gives why it must be dropped, "" = it may
// stay; or who has to go in its stead.
func (w *crowd) arrive(p *place) (reason string, victim *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.sources[p.from]; t != nil && !p.local {
		if t.all() >= w.bounds.Source {
			return dropSource, nil
		}
		if t.early() >= w.bounds.SourceHandshakes {
			i := slices.IndexFunc(w.silent, func(q *place) bool { return q.from == p.from })
			if i < 0 {
				return dropSource, nil
			}
			reason, victim = dropSource, w.silent[i]
		}
	}
	switch {
	case victim != nil:
	case w.total.all() >= w.bounds.Total:
		if len(w.silent) == 0 {
			return dropTotal, nil
		}
		reason, victim = dropTotal, busiest(w.silent)[0]
	case len(w.silent) >= w.bounds.Silent:
		reason, victim = dropSilent, busiest(w.silent)[0]
	}
	if victim != nil {
		w.remove(victim)
	}
	p.phase = phaseSilent
	w.add(p)
	return reason, victim
}

// speak is told that the version of a connection is known. Where many are in their
// handshake it gives, by chance, one that has to go: the quietest of the source that
// has most. So a login that goes on is safe among many that do not; p itself is the
// one only where it stands alone.
func (w *crowd) speak(p *place) (victim *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.move(p, phaseHandshake) {
		return nil
	}
	n, full := len(w.shaking), w.bounds.Handshakes
	start := full / 4
	if n <= start || n <= full && w.dice() >= 0.3+0.7*float64(n-start)/float64(full-start) {
		return nil
	}
	victim = quietest(busiest(w.shaking))
	w.remove(victim)
	return victim
}

// wait asks for a place among those who wait for a person. Nobody who has one has
// to go for it.
func (w *crowd) wait(p *place) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.sources[p.from]
	if t == nil || w.total[phaseWaiting] >= w.bounds.Waiting || t[phaseWaiting] >= w.bounds.SourceWaiting {
		return false
	}
	return w.move(p, phaseWaiting)
}

// resume is told that a wait is over.
func (w *crowd) resume(p *place) { w.to(p, phaseHandshake) }

// seat counts a connection for the account that is about to log in; false when that
// has too many.
func (w *crowd) seat(p *place, account int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case p.left || p.owner != 0:
		return true
	case w.accounts[account] >= w.bounds.Account:
		return false
	}
	p.owner = account
	w.accounts[account]++
	return true
}

// enter is told that a login has succeeded.
func (w *crowd) enter(p *place) { w.to(p, phaseIn) }

func (w *crowd) to(p *place, next phase) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.move(p, next)
}

// leave is told that a connection has ended.
func (w *crowd) leave(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(p)
	if p.owner == 0 {
		return
	}
	if w.accounts[p.owner]--; w.accounts[p.owner] == 0 {
		delete(w.accounts, p.owner)
	}
	p.owner = 0
}

// counts are the connections by phase.
func (w *crowd) counts() tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

func (w *crowd) move(p *place, next phase) bool {
	if p.left {
		return false
	}
	w.remove(p)
	p.left, p.phase = false, next
	w.add(p)
	return true
}

func (w *crowd) add(p *place) {
	w.total[p.phase]++
	t := w.sources[p.from]
	if t == nil {
		t = &tally{}
		w.sources[p.from] = t
	}
	t[p.phase]++
	if list := w.list(p.phase); list != nil {
		*list = append(*list, p)
	}
}

func (w *crowd) remove(p *place) {
	if p.left {
		return
	}
	p.left = true
	w.total[p.phase]--
	if t := w.sources[p.from]; t != nil {
		if t[p.phase]--; t.all() == 0 {
			delete(w.sources, p.from)
		}
	}
	if list := w.list(p.phase); list != nil {
		if i := slices.Index(*list, p); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
	}
}

func (w *crowd) list(of phase) *[]*place {
	switch of {
	case phaseSilent:
		return &w.silent
	case phaseHandshake:
		return &w.shaking
	}
	return nil
}

// busiest are those of the source that has most in a list, in its order.
func busiest(list []*place) (most []*place) {
	count := map[netip.Prefix]int{}
	var top netip.Prefix
	for _, p := range list {
		if count[p.from]++; count[p.from] > count[top] {
			top = p.from
		}
	}
	for _, p := range list {
		if p.from == top {
			most = append(most, p)
		}
	}
	return most
}

// quietest is the one of a list where nothing was heard for longest; of those who wait
// for us the one that came last.
func quietest(list []*place) (most *place) {
	var longest time.Duration
	for _, p := range list {
		if q := p.quiet(); most == nil || q >= longest {
			most, longest = p, q
		}
	}
	return most
}
