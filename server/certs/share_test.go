package certs

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
)

// TestAccountsShareTheQuota: each account asks for as many names as it can get. The first four get 20, 10, 5
// and 2 names, and a fifth still gets some.
func TestAccountsShareTheQuota(t *testing.T) {
	t.Parallel()
	q := &quota{&certmagic.FileStorage{Path: t.TempDir()}}
	names := func(account int64) (got int) {
		t.Helper()
		for {
			err := q.use(t.Context(), fmt.Sprintf("n%d.account-%d.test", got, account), account, time.Now(), false)
			var exceeded *quotaError
			switch {
			case errors.As(err, &exceeded):
				return got
			case err != nil:
				t.Fatal(err)
			}
			got++
		}
	}
	all := 0
	for account, want := range []int{quotaPerAccount, 10, 5, 2} {
		got := names(int64(account + 1))
		if got != want {
			t.Errorf("account %d got %d names, want %d", account+1, got, want)
		}
		all += got
	}
	if all >= quotaTotal {
		t.Errorf("four accounts used %d names, all of them", all)
	}
	if got := names(9); got == 0 {
		t.Error("the fifth account got none")
	}
}
