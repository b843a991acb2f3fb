// Package admission says which connections the SSH server may keep: a limiter counts them in
// all, by source and by account, and penalties keep sources of failed logins out for a while.
package admission

import (
	"cmp"
	"math"
	"net/netip"
	"sync"
	"time"
)

// Limits are the numbers of connections that a Limiter allows. Of the first three 0 is no limit.
type Limits struct {
	Total, PerSource, PerAccount int
	// Unauthenticated is how many may not have logged in yet; 0 = 1,024.
	Unauthenticated int
	// Prompts is how many logins may wait for a person, who approves a key or types a
	// token; 0 = 256.
	Prompts int
	// Elsewhere returns how many connections an account has at other nodes; nil = there are none.
	Elsewhere func(account int64) int
}

const (
	// maxPromptsPerSource is how many logins of one source that is not shared may wait for a
	// person.
	maxPromptsPerSource = 8
	// maxNodeLogins is how many connections may be about to log in as other nodes, and
	// maxNodeLoginsPerSource how many of them one source may have that is not known to be one.
	maxNodeLogins, maxNodeLoginsPerSource = 64, 8
)

// State says how far the login of a connection has come.
type State int

// States of a connection.
const (
	Unauthenticated State = iota
	Prompting             // the login waits for a person
	LoggedIn
	// NodeLogin is a connection that says, or may be about to say, that another node has made
	// it, and Node one that has proven it. Both are outside of the limits of clients, so that
	// nodes reach each other however many clients there are.
	NodeLogin
	Node
	states
)

// Reasons for which a connection is dropped.
const (
	ReasonPenalty         = "penalty"
	ReasonTotal           = "total"
	ReasonSource          = "source"
	ReasonUnauthenticated = "unauthenticated"
)

// Reasons lists them.
var Reasons = []string{ReasonPenalty, ReasonTotal, ReasonSource, ReasonUnauthenticated}

// Conn is a connection that has a slot. Its methods may be called concurrently.
type Conn interface {
	// Silent returns the time since the peer was heard; 0 while its login waits for the server.
	Silent() time.Duration
}

// Slot is what one connection takes of the limits. Its fields are set once; the rest belongs to
// the Limiter.
type Slot[C Conn] struct {
	Conn   C
	Source netip.Prefix
	// Shared marks loopback, trusted proxies and other nodes: many people come from there, so
	// that no limit per source holds.
	Shared bool
	// OfNode marks addresses that other nodes are known to have. A stranger takes no slot of
	// them while strangers have others.
	OfNode bool

	state    State
	since    uint64 // orders slots by when their state was set
	released bool
	account  int64 // the account that it is counted for; 0 = none yet
}

// Counts counts connections by state.
type Counts [states]int

// All returns the sum of those that are not of other nodes.
func (n *Counts) All() int { return n[Unauthenticated] + n[Prompting] + n[LoggedIn] }

// Limiter counts connections in all, by source and by account. A new connection
// that finds no slot takes the one of a connection that has not logged in: many
// silent sockets must not keep a login out (OpenSSH's MaxStartups drops at random for
// the same reason). It closes nothing itself. Safe for concurrent use.
type Limiter[C Conn] struct {
	limits Limits

	mu              sync.Mutex
	total           Counts
	sources         map[netip.Prefix]Counts
	accounts        map[int64]int
	unauthenticated map[*Slot[C]]struct{}
	prompting       map[*Slot[C]]struct{}
	nodeLogins      map[*Slot[C]]struct{}
	moves           uint64 // so many changes of state
}

// NewLimiter makes a limiter.
func NewLimiter[C Conn](l Limits) *Limiter[C] {
	for _, limit := range []*int{&l.Total, &l.PerSource, &l.PerAccount} {
		if *limit <= 0 {
			*limit = math.MaxInt
		}
	}
	l.Unauthenticated, l.Prompts = cmp.Or(l.Unauthenticated, 1024), cmp.Or(l.Prompts, 256)
	return &Limiter[C]{
		limits: l, sources: map[netip.Prefix]Counts{}, accounts: map[int64]int{},
		unauthenticated: map[*Slot[C]]struct{}{}, prompting: map[*Slot[C]]struct{}{}, nodeLogins: map[*Slot[C]]struct{}{},
	}
}

// Acquire takes a slot for a new connection. The reason is empty where there was
// space. Otherwise the caller has to close the evicted connection, or, where that is
// nil, the new one.
func (l *Limiter[C]) Acquire(s *Slot[C]) (evicted *Slot[C], reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.sources[s.Source]
	from := s.Source
	switch {
	case !s.Shared && n.All() >= l.limits.PerSource:
		reason = ReasonSource
	case l.total.All() >= l.limits.Total:
		reason, from = ReasonTotal, l.busiestSource()
	case len(l.unauthenticated) >= l.limits.Unauthenticated:
		reason, from = ReasonUnauthenticated, l.busiestSource()
	}
	if reason != "" {
		if evicted = l.mostSilent(from); evicted == nil {
			return nil, reason
		}
		l.remove(evicted)
	}
	l.set(s, Unauthenticated)
	return evicted, reason
}

// AcquireForNode takes a slot for a connection that may be one of another node: it is new and
// found no slot among the clients, or it has one and said that it is of a node. Where too many
// are about to log in, the caller has to close the evicted connection; ok is false when the
// connection itself gets no slot.
func (l *Limiter[C]) AcquireForNode(s *Slot[C], isNew bool) (evicted *Slot[C], ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.OfNode && !s.Shared && l.sources[s.Source][NodeLogin] >= maxNodeLoginsPerSource {
		return nil, false
	}
	if len(l.nodeLogins) >= maxNodeLogins {
		if evicted = oldestOfBusiest(l.nodeLogins); evicted != nil {
			l.remove(evicted)
		}
	}
	if isNew {
		l.set(s, NodeLogin)
		return evicted, true
	}
	return evicted, l.move(s, NodeLogin)
}

// BeginPrompt says that the login waits for a person; ok is false when too many of its source
// do. Where too many do in all, it takes the place of the oldest one of the network with the
// most of them, if its own network has fewer: strangers that wait must not keep everybody else
// out. The caller has to close the evicted one.
func (l *Limiter[C]) BeginPrompt(s *Slot[C]) (evicted *Slot[C], ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.Shared && l.sources[s.Source][Prompting] >= maxPromptsPerSource {
		return nil, false
	}
	if l.total[Prompting] >= l.limits.Prompts {
		if evicted = oldestOfBusiest(l.prompting); evicted == nil || count(l.prompting, evicted) <= count(l.prompting, s) {
			return nil, false
		}
		l.remove(evicted)
	}
	return evicted, l.move(s, Prompting)
}

// oldestOfBusiest returns the slot that has its state longest in the network with the most
// slots of this state. Those of nodes come last.
func oldestOfBusiest[C Conn](slots map[*Slot[C]]struct{}) (oldest *Slot[C]) {
	counts := map[netip.Prefix]int{}
	for s := range slots {
		counts[network(s.Source)]++
	}
	busy := func(s *Slot[C]) int {
		if s.OfNode {
			return 0
		}
		return counts[network(s.Source)]
	}
	for s := range slots {
		if oldest == nil || busy(s) > busy(oldest) || busy(s) == busy(oldest) && s.since < oldest.since {
			oldest = s
		}
	}
	return oldest
}

// count counts the slots whose network is that of s.
func count[C Conn](slots map[*Slot[C]]struct{}, s *Slot[C]) (n int) {
	for other := range slots {
		if network(other.Source) == network(s.Source) {
			n++
		}
	}
	return n
}

// network is what one customer of a provider has at most: one can have many sources.
func network(source netip.Prefix) netip.Prefix {
	bits := 24
	if source.Addr().Is6() {
		bits = 48
	}
	p, _ := source.Addr().Prefix(bits)
	return p
}

// ReserveAccount counts a connection for the account that is about to log in; false
// when the account has too many, at all nodes together.
func (l *Limiter[C]) ReserveAccount(s *Slot[C], account int64) bool {
	others := 0
	if l.limits.Elsewhere != nil && l.limits.PerAccount < math.MaxInt {
		others = l.limits.Elsewhere(account)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.released || s.account != 0:
		return true
	case l.accounts[account] >= l.limits.PerAccount-others:
		return false
	}
	s.account = account
	l.accounts[account]++
	return true
}

// Release gives the slot of a connection back that has ended.
func (l *Limiter[C]) Release(s *Slot[C]) {
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

// AccountsToTell returns what the other nodes need to know to hold the limit of an account:
// the accounts with at least 1/64 of it. Most of some thousand accounts have one connection
// each, and need not be written each second.
func (l *Limiter[C]) AccountsToTell() map[int64]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := map[int64]int{}
	for account, n := range l.accounts {
		if n >= max(1, l.limits.PerAccount/64) {
			list[account] = n
		}
	}
	return list
}

// Counts returns the number of connections by state.
func (l *Limiter[C]) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// SetState notes how far the login of a connection has come.
func (l *Limiter[C]) SetState(s *Slot[C], next State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.move(s, next)
}

func (l *Limiter[C]) move(s *Slot[C], next State) bool {
	if s.released {
		return false
	}
	l.count(s, -1)
	l.set(s, next)
	return true
}

// set counts a slot in a state.
func (l *Limiter[C]) set(s *Slot[C], state State) {
	l.moves++
	s.state, s.since = state, l.moves
	l.count(s, 1)
}

// count adds a slot to the counts, or with -1 takes it out.
func (l *Limiter[C]) count(s *Slot[C], by int) {
	l.total[s.state] += by
	n := l.sources[s.Source]
	n[s.state] += by
	l.sources[s.Source] = n
	if n == (Counts{}) {
		delete(l.sources, s.Source)
	}
	var slots map[*Slot[C]]struct{}
	switch s.state {
	case Unauthenticated:
		slots = l.unauthenticated
	case Prompting:
		slots = l.prompting
	case NodeLogin:
		slots = l.nodeLogins
	default:
		return
	}
	if by > 0 {
		slots[s] = struct{}{}
	} else {
		delete(slots, s)
	}
}

func (l *Limiter[C]) remove(s *Slot[C]) {
	if !s.released {
		s.released = true
		l.count(s, -1)
	}
}

// busiestSource returns the source that has most connections without a login.
func (l *Limiter[C]) busiestSource() (top netip.Prefix) {
	count := map[netip.Prefix]int{}
	for s := range l.unauthenticated {
		if count[s.Source]++; count[s.Source] > count[top] {
			top = s.Source
		}
	}
	return top
}

// mostSilent returns the slot of the source whose peer was not heard for the longest
// time, nil where the source has none. Among peers that wait for our answer it is
// nobody: evicting them would throw away work that is nearly done, so that the new
// connection has to come again.
func (l *Limiter[C]) mostSilent(source netip.Prefix) (most *Slot[C]) {
	var longest time.Duration
	for s := range l.unauthenticated {
		if s.Source != source {
			continue
		}
		if d := s.Conn.Silent(); d > longest {
			most, longest = s, d
		}
	}
	return most
}
