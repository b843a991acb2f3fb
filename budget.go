package relay

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
)

// ErrOverBudget ends the reads of a Channel whose peer had sent bytes that nobody took
// yet, while the Budget had no space for them. The channel was closed, its bytes were
// dropped.
var ErrOverBudget = errors.New("no buffer space for what the peer sent")

// Budget bounds the bytes that are held for what peers sent and nobody took yet, such
// as the answers of quick local servers to slow callers. An account may hold at most a
// quarter of all. A nil Budget bounds nothing. Safe for concurrent use.
type Budget struct {
	limit, perAccount int64
	refused           atomic.Int64

	mu       sync.Mutex
	used     int64
	accounts map[int64]int64
}

// NewBudget makes a budget of so many bytes; a limit of 0 bounds nothing, but is
// counted.
func NewBudget(limit int64) *Budget {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	return &Budget{limit: limit, perAccount: max(1, limit/4), accounts: map[int64]int64{}}
}

// Reserve takes n bytes for the account; false when it or all accounts have too many.
// Then nothing is taken.
func (b *Budget) Reserve(account, n int64) bool {
	if b == nil || n <= 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(account, n) {
		b.refused.Add(1)
		return false
	}
	b.used += n
	b.accounts[account] += n
	return true
}

// Fits tells whether Reserve would succeed.
func (b *Budget) Fits(account, n int64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(account, n) {
		b.refused.Add(1)
		return false
	}
	return true
}

func (b *Budget) fits(account, n int64) bool {
	return b.used <= b.limit-n && b.accounts[account] <= b.perAccount-n
}

// Release gives back n bytes that Reserve took for the account.
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

// BudgetStats are the figures of a Budget.
type BudgetStats struct {
	Used     int64 // bytes
	Limit    int64 // bytes; math.MaxInt64 = none
	Accounts int   // that hold any
	Refused  int64 // how often there was no space, since the start
}

// Stats returns the figures as they stand.
func (b *Budget) Stats() BudgetStats {
	if b == nil {
		return BudgetStats{Limit: math.MaxInt64}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return BudgetStats{Used: b.used, Limit: b.limit, Accounts: len(b.accounts), Refused: b.refused.Load()}
}
