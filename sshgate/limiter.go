package sshgate

import (
	"math"
	"net/netip"
	"slices"
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

// sourceOf returns the network that is counted as one source.
func sourceOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a = a.Unmap(); a.Is6() {
		bits = 64
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no IP address: all such peers are one source
	}
	return p
}

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
	unauthenticated []*slot // oldest first
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
		sources:  map[netip.Prefix]*slotCounts{},
		accounts: map[int64]int{},
	}
}

// acquire takes a slot for a new connection. The reason is empty where there was
// space. Otherwise the caller has to close the evicted connection, or, where that is
// nil, the new one.
func (l *connLimiter) acquire(s *slot) (evicted *slot, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.sources[s.source]
	switch {
	case n != nil && !s.shared && n.all() >= l.maxPerSource:
		reason = dropSource
		evicted = mostSilent(l.unauthenticated, s.source)
	case l.total.all() >= l.maxTotal:
		reason = dropTotal
		evicted = mostSilent(l.unauthenticated, busiestSource(l.unauthenticated))
	case len(l.unauthenticated) >= l.maxUnauthenticated:
		reason = dropUnauthenticated
		evicted = mostSilent(l.unauthenticated, busiestSource(l.unauthenticated))
	}
	if reason != "" && evicted == nil {
		return nil, reason
	}
	if evicted != nil {
		l.remove(evicted)
	}
	s.state = stateUnauthenticated
	l.add(s)
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

// endPrompt says that the wait for the person is over.
func (l *connLimiter) endPrompt(s *slot) { l.to(s, stateUnauthenticated) }

// loggedIn says that the login has succeeded.
func (l *connLimiter) loggedIn(s *slot) { l.to(s, stateLoggedIn) }

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

func (l *connLimiter) to(s *slot, next slotState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.move(s, next)
}

func (l *connLimiter) move(s *slot, next slotState) bool {
	if s.released {
		return false
	}
	l.remove(s)
	s.released, s.state = false, next
	l.add(s)
	return true
}

func (l *connLimiter) add(s *slot) {
	l.total[s.state]++
	n := l.sources[s.source]
	if n == nil {
		n = &slotCounts{}
		l.sources[s.source] = n
	}
	n[s.state]++
	if s.state == stateUnauthenticated {
		l.unauthenticated = append(l.unauthenticated, s)
	}
}

func (l *connLimiter) remove(s *slot) {
	if s.released {
		return
	}
	s.released = true
	l.total[s.state]--
	if n := l.sources[s.source]; n != nil {
		if n[s.state]--; n.all() == 0 {
			delete(l.sources, s.source)
		}
	}
	if i := slices.Index(l.unauthenticated, s); i >= 0 {
		l.unauthenticated = slices.Delete(l.unauthenticated, i, i+1)
	}
}

// busiestSource returns the source that has most slots of the list.
func busiestSource(list []*slot) (top netip.Prefix) {
	count := map[netip.Prefix]int{}
	for _, s := range list {
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
func mostSilent(list []*slot, source netip.Prefix) (most *slot) {
	var longest time.Duration
	for _, s := range list {
		if s.source != source {
			continue
		}
		if d := s.silent(); d > longest {
			most, longest = s, d
		}
	}
	return most
}
