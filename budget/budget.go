// Package budget bounds the memory for bytes that wait until the peer of a connection reads them. It also writes
// responses that were built in memory, and keeps their bytes within that bound.
package budget

import (
	"errors"
	"math"
	"sync"

	"relay"
)

// ErrOver is the error of reads from a link.Channel whose peer has sent bytes for which the Budget had no
// space. The channel was closed and its unread bytes were dropped.
var ErrOver = errors.New("no buffer space for the bytes that the peer sent")

// Budget bounds the memory for bytes that wait for a reader: responses of fast local servers to slow
// callers, and responses of relayd to clients that read slowly. One account may use at most a quarter.
// A nil Budget bounds nothing. A Budget is safe for concurrent use.
type Budget struct {
	limit, perAccount int64

	mu       sync.Mutex
	refused  int64
	used     int64
	accounts map[int64]int64
}

// New makes a budget; limit is its size in bytes. With a limit of 0 nothing is refused, but the bytes are
// counted.
func New(limit int64) *Budget {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	return &Budget{limit: limit, perAccount: max(1, limit/4), accounts: map[int64]int64{}}
}

// Reserve takes n bytes for the account. If that would exceed the limit of the account or of all
// accounts, it takes nothing and returns false.
func (b *Budget) Reserve(account, n int64) bool {
	if b == nil || n <= 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(account, n) {
		return false
	}
	b.used += n
	b.accounts[account] += n
	return true
}

// Fits reports whether Reserve would succeed for n bytes. If n is more than the share of an account, Fits
// checks for the whole share instead, so that a small budget does not refuse every request.
func (b *Budget) Fits(account, n int64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fits(account, min(n, b.perAccount))
}

func (b *Budget) fits(account, n int64) bool {
	if b.used > b.limit-n || b.accounts[account] > b.perAccount-n {
		b.refused++
		return false
	}
	return true
}

// Release gives back n bytes that Reserve has taken for the account.
func (b *Budget) Release(account, n int64) {
	if b == nil || n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.accounts[account] -= n; b.accounts[account] <= 0 {
		delete(b.accounts, account)
	}
}

// Share returns the largest number of bytes that one account may hold.
func (b *Budget) Share() int64 {
	if b == nil {
		return math.MaxInt64
	}
	return b.perAccount
}

// Stats are the figures of a Budget.
type Stats struct {
	Used     int64 // bytes
	Limit    int64 // bytes; math.MaxInt64 = none
	Accounts int   // number of accounts that hold bytes
	Refused  int64 // number of times that Reserve or Fits has returned false since the start
}

// Stats returns the current figures.
func (b *Budget) Stats() Stats {
	if b == nil {
		return Stats{Limit: math.MaxInt64}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Used: b.used, Limit: b.limit, Accounts: len(b.accounts), Refused: b.refused}
}

// Hold is a reservation in a Budget whose size can change. It is safe for concurrent use.
type Hold struct {
	Budget  *Budget
	Account int64

	mu   sync.Mutex
	held int64
}

// Set changes the reservation to n bytes. If n is more than the share of an account, it reserves the share, so
// that a larger response can still be built while the account holds nothing else. If there is no space, it
// returns an overloaded error and keeps the previous reservation.
func (h *Hold) Set(n int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = min(n, h.Budget.Share())
	switch {
	case n < h.held:
		h.Budget.Release(h.Account, h.held-n)
	case !h.Budget.Reserve(h.Account, n-h.held):
		return relay.Overloaded("the relay holds as many bytes as it may for answers that were not read; read them, or try again in a moment")
	}
	h.held = n
	return nil
}

// Release gives all bytes of the reservation back.
func (h *Hold) Release() { _ = h.Set(0) }
