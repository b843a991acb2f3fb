package certs

import (
	"context"
	"io/fs"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mholt/acmez/v3/acme"

	"relay"
)

// anyFiles is SharedFiles under another name: an embedded field SharedFiles would hide the method
// SharedFiles.
type anyFiles = SharedFiles

// slowFiles are shared files whose reads wait until the test closes the channel gate. now counts the waiting
// reads, and most is the largest such count.
type slowFiles struct {
	anyFiles
	now, most atomic.Int64
	gate      chan struct{}
}

func (f *slowFiles) SharedFile(context.Context, string) (data []byte, modified time.Time, err error) {
	if n := f.now.Add(1); n > f.most.Load() {
		f.most.Store(n)
	}
	defer f.now.Add(-1)
	<-f.gate
	return nil, time.Time{}, fs.ErrNotExist
}

// TestChallengesThatNobodyWaitsFor: if 50 look-ups of challenges run at the same time, only maxLookups of
// them read the shared files, and the others wait.
func TestChallengesThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := &slowFiles{gate: make(chan struct{})}
		a, err := NewACME(ACMEOptions{
			Site:  relay.Site{Base: url.URL{Scheme: "https", Host: "relay.test"}, AliasDomain: "hooks.test"},
			Alias: func(string) (int64, bool) { return 1, true }, Files: files,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Stop()
		for range 50 {
			go a.pendingChallenge(context.Background(), "shop.hooks.test", acme.ChallengeTypeTLSALPN01)
		}
		synctest.Wait()
		if n := files.most.Load(); n != maxLookups {
			t.Errorf("%d questions at once", n)
		}
		close(files.gate)
		synctest.Wait()
	})
}
