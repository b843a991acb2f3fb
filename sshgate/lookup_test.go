package sshgate

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// slowStore is a store whose lookups of key owners wait until the channel open is closed.
type slowStore struct {
	*fakeStore
	open      chan struct{}
	now, most atomic.Int64
}

func (h *slowStore) KeyOwner(ctx context.Context, fingerprint string) (relay.Actor, error) {
	h.most.Store(max(h.most.Load(), h.now.Add(1)))
	defer h.now.Add(-1)
	<-h.open // ctx does not end the wait, because it may expire on a busy machine
	return h.fakeStore.KeyOwner(ctx, fingerprint)
}

// Limits of package login, repeated here because that package does not export them.
const (
	maxLookups, shortGreetingAt  = 16, 64
	greetRows                    = 18
	maxAuthTries, tokenTries     = 20, 3
	refusedLines, refusedEntries = 10, 20
)

// TestAllComeAtOnce: if many clients log in at once, as after a restart, the number of concurrent lookups of key
// owners is limited. Each login still succeeds in time.
func TestAllComeAtOnce(t *testing.T) {
	t.Parallel()
	var h *slowStore
	b := newFixture(t, func(o *Options) {
		h = &slowStore{fakeStore: o.Accounts.(*fakeStore), open: make(chan struct{})}
		o.Accounts, o.HandshakeTimeout = h, time.Minute
	})
	const clients = maxLookups + shortGreetingAt + 10
	var work sync.WaitGroup
	var short atomic.Int64
	for range clients {
		work.Go(func() {
			_, banner, err := b.dial("relay", ssh.PublicKeys(b.alice.signer))
			if err != nil {
				t.Errorf("login: %v", err)
			}
			if strings.Contains(banner, "many are coming in") {
				short.Add(1)
			}
		})
	}
	eventually(t, 30*time.Second, "all to wait", func() bool { return b.srv.logins.Waiting() == clients-maxLookups })
	if n := h.now.Load(); n != maxLookups || h.most.Load() > maxLookups {
		t.Errorf("%d ask at once", n)
	}
	close(h.open)
	work.Wait()
	if n := b.srv.logins.Waiting(); n != 0 {
		t.Fatalf("%d wait when all are in", n)
	}
	if _, banner, err := b.dial("relay", ssh.PublicKeys(b.alice.signer)); err != nil || !strings.Contains(banner, "no alias yet") {
		t.Errorf("afterwards the greeting is %q, %v", banner, err)
	}
}
