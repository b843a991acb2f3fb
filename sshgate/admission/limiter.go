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

// maxPromptsPerSource is how many logins of one source that is not shared may wait for a person.
const maxPromptsPerSource = 8

// State says how far the login of a connection has come.
type State int

// States of a connection.
const (
	Unauthenticated State = iota
	Prompting             // the login waits for a person
	LoggedIn
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
	// Shared marks loopback and trusted proxies: many people come from there, so that
	// no limit per source holds.
	Shared bool

	state    State
	released bool
	account  int64 // the account that it is counted for; 0 = none yet
}

// Counts counts connections by state.
type Counts [states]int

// All returns their sum.
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
}

// NewLimiter makes a limiter.
func NewLimiter[C Conn](l Limits) *Limiter[C] {
	for _, limit := range []*int{&l.Total, &l.PerSource, &l.PerAccount} {
		if *limit <= 0 {
			*limit = math.MaxInt
		}
	}
	l.Unauthenticated, l.Prompts = cmp.Or(l.Unauthenticated, 1024), cmp.Or(l.Prompts, 256)
	return &Limiter[C]{limits: l, sources: map[netip.Prefix]Counts{}, accounts: map[int64]int{}, unauthenticated: map[*Slot[C]]struct{}{}}
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
	l.count(s, 1)
	return evicted, reason
}

// BeginPrompt says that the login waits for a person; false when too many do. Such a
// connection is not evicted for a new one.
func (l *Limiter[C]) BeginPrompt(s *Slot[C]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.sources[s.Source]
	if l.total[Prompting] >= l.limits.Prompts || !s.Shared && n[Prompting] >= maxPromptsPerSource {
		return false
	}
	return l.move(s, Prompting)
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
	s.state = next
	l.count(s, 1)
	return true
}

// count adds a slot to the counts, or with -1 takes it out.
func (l *Limiter[C]) count(s *Slot[C], by int) {
	l.total[s.state] += by
	n := l.sources[s.Source]
	n[s.state] += by
	l.sources[s.Source] = n
	if n.All() == 0 {
		delete(l.sources, s.Source)
	}
	delete(l.unauthenticated, s)
	if s.state == Unauthenticated && by > 0 {
		l.unauthenticated[s] = struct{}{}
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
