package sshgate

import (
	"maps"
	"math"
	"net/netip"
	"sync"
	"time"
)

// Limits of connections that are no settings.
const (
	maxUnauthenticated  = 1024 // connections that have not logged in yet
	maxPrompts          = 256  // logins that wait for a person: an approval, or a token being typed
	maxPromptsPerSource = 8    // those of one source that is not shared
)

// slotState says how far the login of a connection has come.
type slotState int

const (
	stateUnauthenticated slotState = iota
	statePrompting                 // the login waits for a person
	stateLoggedIn
	slotStates
)

// Reasons for which a connection was dropped.
const (
	dropPenalty         = "penalty"
	dropTotal           = "total"
	dropSource          = "source"
	dropUnauthenticated = "unauthenticated"
)

var dropReasons = []string{dropPenalty, dropTotal, dropSource, dropUnauthenticated}

// slot is what one connection takes of the limits. Only connLimiter changes it after
// its first use.
type slot struct {
	c      *conn
	source netip.Prefix
	// shared marks loopback and trusted proxies: many people come from there, so that
	// no limit per source holds.
	shared   bool
	state    slotState
	released bool
	account  int64 // the account that it is counted for; 0 = none yet
}

// silent returns the time since the peer was heard; 0 while the login waits for us.
func (s *slot) silent() time.Duration {
	if s.c == nil || s.c.lookups.Load() > 0 {
		return 0
	}
	return s.c.sock.silentFor()
}

// slotCounts counts slots by state.
type slotCounts [slotStates]int

func (n *slotCounts) all() int { return n[stateUnauthenticated] + n[statePrompting] + n[stateLoggedIn] }

// connLimiter counts connections in all, by source and by account. A new connection
// that finds no slot takes the one of a connection that has not logged in: many
// silent sockets must not keep a login out (OpenSSH's MaxStartups drops at random for
// the same reason). It closes nothing itself. Safe for concurrent use.
type connLimiter struct {
	maxTotal, maxPerSource, maxPerAccount int
	maxUnauthenticated, maxPrompts        int                     // the constants, but in tests
	elsewhere                             func(account int64) int // connections at other nodes; nil = there are none

	mu              sync.Mutex
	total           slotCounts
	sources         map[netip.Prefix]*slotCounts
	accounts        map[int64]int
	unauthenticated map[*slot]struct{}
}

// newConnLimiter makes a limiter; a limit of 0 does not limit.
func newConnLimiter(total, perSource, perAccount int) *connLimiter {
	limit := func(n int) int {
		if n <= 0 {
			return math.MaxInt
		}
		return n
	}
	return &connLimiter{
		maxTotal: limit(total), maxPerSource: limit(perSource), maxPerAccount: limit(perAccount),
		maxUnauthenticated: maxUnauthenticated, maxPrompts: maxPrompts,
		sources: map[netip.Prefix]*slotCounts{}, accounts: map[int64]int{}, unauthenticated: map[*slot]struct{}{},
	}
}

// acquire takes a slot for a new connection. The reason is empty where there was
// space. Otherwise the caller has to close the evicted connection, or, where that is
// nil, the new one.
func (l *connLimiter) acquire(s *slot) (evicted *slot, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.sources[s.source]
	from := s.source
	switch {
	case n != nil && !s.shared && n.all() >= l.maxPerSource:
		reason = dropSource
	case l.total.all() >= l.maxTotal:
		reason, from = dropTotal, l.busiestSource()
	case len(l.unauthenticated) >= l.maxUnauthenticated:
		reason, from = dropUnauthenticated, l.busiestSource()
	}
	if reason != "" {
		if evicted = l.mostSilent(from); evicted == nil {
			return nil, reason
		}
		l.remove(evicted)
	}
	l.count(s, 1)
	return evicted, reason
}

// beginPrompt says that the login waits for a person; false when too many do. Such a
// connection is not evicted for a new one.
func (l *connLimiter) beginPrompt(s *slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.sources[s.source]
	if n == nil || l.total[statePrompting] >= l.maxPrompts || !s.shared && n[statePrompting] >= maxPromptsPerSource {
		return false
	}
	return l.move(s, statePrompting)
}

// reserveAccount counts a connection for the account that is about to log in; false
// when the account has too many, at all nodes together.
func (l *connLimiter) reserveAccount(s *slot, account int64) bool {
	others := 0
	if l.elsewhere != nil && l.maxPerAccount < math.MaxInt {
		others = l.elsewhere(account)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.released || s.account != 0:
		return true
	case l.accounts[account] >= l.maxPerAccount-others:
		return false
	}
	s.account = account
	l.accounts[account]++
	return true
}

// release gives the slot of a connection back that has ended.
func (l *connLimiter) release(s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(s)
	if s.account == 0 {
		return
	}
	if l.accounts[s.account]--; l.accounts[s.account] == 0 {
		delete(l.accounts, s.account)
	}
	s.account = 0
}

// accountsToTell returns what the other nodes need to know to hold the limit of an account:
// the accounts with at least 1/64 of it. Most of some thousand accounts have one connection
// each, and need not be written each second.
func (l *connLimiter) accountsToTell() map[int64]int {
	list := map[int64]int{}
	if l.maxPerAccount == math.MaxInt {
		return list
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for account, n := range l.accounts {
		if n >= max(1, l.maxPerAccount/64) {
			list[account] = n
		}
	}
	return list
}

// counts returns the number of connections by state.
func (l *connLimiter) counts() slotCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// to notes how far the login of a connection has come.
func (l *connLimiter) to(s *slot, next slotState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.move(s, next)
}

func (l *connLimiter) move(s *slot, next slotState) bool {
	if s.released {
		return false
	}
	l.count(s, -1)
	s.state = next
	l.count(s, 1)
	return true
}

// count adds a slot to the counts, or with -1 takes it out.
func (l *connLimiter) count(s *slot, by int) {
	l.total[s.state] += by
	n := l.sources[s.source]
	if n == nil {
		n = &slotCounts{}
		l.sources[s.source] = n
	}
	if n[s.state] += by; n.all() == 0 {
		delete(l.sources, s.source)
	}
	delete(l.unauthenticated, s)
	if s.state == stateUnauthenticated && by > 0 {
		l.unauthenticated[s] = struct{}{}
	}
}

func (l *connLimiter) remove(s *slot) {
	if !s.released {
		s.released = true
		l.count(s, -1)
	}
}

// busiestSource returns the source that has most connections without a login.
func (l *connLimiter) busiestSource() (top netip.Prefix) {
	count := map[netip.Prefix]int{}
	for s := range l.unauthenticated {
		if count[s.source]++; count[s.source] > count[top] {
			top = s.source
		}
	}
	return top
}

// mostSilent returns the slot of the source whose peer was not heard for the longest
// time, nil where the source has none. Among peers that wait for our answer it is
// nobody: evicting them would throw away work that is nearly done, so that the new
// connection has to come again.
func (l *connLimiter) mostSilent(source netip.Prefix) (most *slot) {
	var longest time.Duration
	for s := range l.unauthenticated {
		if s.source != source {
			continue
		}
		if d := s.silent(); d > longest {
			most, longest = s, d
		}
	}
	return most
}

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
	maps.DeleteFunc(p.bySource, func(_ netip.Prefix, x penalty) bool { return !x.until.After(now) })
	return len(p.bySource) < maxPenalties
}
