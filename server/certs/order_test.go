package certs

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"relay/relaytest"
)

// Each of very many tunnels that came at once had a goroutine of its own that waited
// for its turn at the CA.
func TestOrdersAheadAreBounded(t *testing.T) {
	t.Parallel()
	a := newTestACME(t)
	a.mu.Lock()
	for i := range maxIssuances {
		a.issuances[strconv.Itoa(i)] = &issuance{running: make(chan struct{})}
	}
	a.mu.Unlock()
	a.Online("good")
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.issuances) > maxIssuances {
		t.Error("one more was taken")
	}
}

// TestFailedOrderIsTriedAgainByItself: an order that failed because the CA was unreachable is repeated
// without a handshake, because a handshake times out before an order is complete.
func TestFailedOrderIsTriedAgainByItself(t *testing.T) {
	t.Parallel()
	a := newTestACME(t) // its CA refuses connections
	a.Start()
	a.Online("good")
	failures := func(name string) int {
		a.mu.Lock()
		defer a.mu.Unlock()
		if o := a.issuances[name]; o != nil {
			return o.unreachable
		}
		return 0
	}
	for _, name := range []string{"relay.test", "good.hooks.test"} {
		relaytest.Until(t, 10*time.Second, "a second try", func() bool { return failures(name) > 1 })
	}
	name := "gone.hooks.test" // an alias that was removed meanwhile
	o := &issuance{}
	a.mu.Lock()
	a.issuances[name] = o
	a.mu.Unlock()
	a.retry(name, o)
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.running != nil {
		t.Error("a name that may have no certificate was tried again")
	}
}

// A stop waited for a look at the CA that takes as long as the CA likes, certificate by
// certificate, before anything else was stopped.
func TestStopDoesNotWaitForTheCA(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, answer := newTestACME(t), make(chan struct{})
		end := a.endCache
		a.endCache = func() { <-answer; end() }
		begun := time.Now()
		a.Stop()
		if took := time.Since(begun); took > stopTimeout {
			t.Errorf("took %v", took)
		}
		a.Stop()
		close(answer)
		<-a.ended
	})
}
