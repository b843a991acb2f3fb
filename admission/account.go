package admission

import "math"

// ReserveAccount counts a connection for the account to which its login, about to succeed, belongs. It returns false
// if the account has too many connections at all nodes together.
func (f *Front) ReserveAccount(s *Slot, account int64) bool {
	others := 0
	if f.limits.Elsewhere != nil && f.limits.PerAccount < math.MaxInt {
		others = f.limits.Elsewhere(account)
	}
	f.limiter.mu.Lock()
	defer f.limiter.mu.Unlock()
	switch {
	case !s.placed() || s.account != 0:
		return true
	case f.accounts[account] >= f.limits.PerAccount-others:
		return false
	}
	s.account = account
	f.accounts[account]++
	return true
}

// leaveAccount removes a connection from the count of its account.
func (s *Slot) leaveAccount() {
	if s.account == 0 {
		return
	}
	n := s.front.accounts
	if n[s.account]--; n[s.account] == 0 {
		delete(n, s.account)
	}
	s.account = 0
}

// AccountsToTell returns the number of connections of each account that has at least 1/64 of its
// limit, so that the other nodes can enforce the limit in total. Smaller numbers are left out,
// because most of several thousand accounts have one connection each, and writing them all each second
// would be wasted work.
func (f *Front) AccountsToTell() map[int64]int {
	f.limiter.mu.Lock()
	defer f.limiter.mu.Unlock()
	list := map[int64]int{}
	for account, n := range f.accounts {
		if n >= max(1, f.limits.PerAccount/64) {
			list[account] = n
		}
	}
	return list
}
