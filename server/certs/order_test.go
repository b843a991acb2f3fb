package certs

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"relay/relaytest"
)

// TestOrdersAheadAreBounded: Online orders nothing if maxIssuances orders are running.
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

// TestFailedOrderIsTriedAgainByItself: an order for which the CA was unreachable is tried again without a
// handshake. A name that may no longer have a certificate is not tried again.
func TestFailedOrderIsTriedAgainByItself(t *testing.T) {
	t.Parallel()
	// The CA of this ACME refuses connections.
	a := newTestACME(t)
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
	// The order for this name has failed, and its alias was removed before the second try.
	name := "gone.hooks.test"
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

// TestStopDoesNotWaitForTheCA: Stop returns within stopTimeout although the renewals of certmagic do not end.
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
