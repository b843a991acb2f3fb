package budget_test

import (
	"testing"

	"relay/budget"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	b := budget.New(100)
	if !b.Reserve(1, 25) || b.Reserve(1, 1) || b.Fits(1, 1) {
		t.Error("an account may hold a quarter, and no more")
	}
	for account := int64(2); account <= 4; account++ {
		if !b.Reserve(account, 25) {
			t.Errorf("account %d has nothing", account)
		}
	}
	if b.Reserve(5, 1) {
		t.Error("more than all was reserved")
	}
	b.Release(1, 25)
	if !b.Reserve(5, 20) || b.Stats() != (budget.Stats{Used: 95, Limit: 100, Accounts: 4, Refused: 3}) {
		t.Errorf("%+v", b.Stats())
	}
	for account, n := range map[int64]int64{2: 25, 3: 25, 4: 25, 5: 20} {
		b.Release(account, n)
	}
	if s := b.Stats(); s.Used != 0 || s.Accounts != 0 {
		t.Errorf("%+v is left", s)
	}
	if off := budget.New(0); !off.Reserve(1, 1<<50) || !(*budget.Budget)(nil).Reserve(1, 1) {
		t.Error("a budget without a limit refused")
	}
}

// TestSmallBudgetRefusesOnlyWhereSomethingIsHeld: more bytes than the share of an account fit while the
// account holds nothing, but not once it holds a byte.
func TestSmallBudgetRefusesOnlyWhereSomethingIsHeld(t *testing.T) {
	t.Parallel()
	b := budget.New(100)
	if !b.Fits(1, 30) || b.Reserve(1, 30) {
		t.Error("30 of at most 25: nothing is held yet, but no more than 25 may be")
	}
	if b.Reserve(1, 1); b.Fits(1, 30) {
		t.Error("it fits although a part is held")
	}
}
