package store

import (
	"testing"
	"time"

	"relay"
	"relay/store/events"
	"relay/store/schematest"
	"relay/store/usage"
)

// farAbove returns a cluster of one node. Its database stores about 4 MB of the alias c.alias, forty times the
// limit of that alias or of its account: the parameter of is "alias" or "account". second is another alias of
// that account, and foreign an alias of another account. A second node holds the leases, so the loops of the
// returned node do not evict.
func farAbove(t *testing.T, of string) (c *testCluster, second, foreign int64) {
	t.Helper()
	const limit = 100 << 10
	o := Options{URL: schematest.URL(t)}
	before := newTestCluster(t, 1, o).withAlias()
	before.add(200, 20<<10, time.Now().Add(-time.Hour), relay.StateDelivering)
	before.exec(`UPDATE attempts SET state = 2`)
	before.exec(`UPDATE events SET state = 2`)
	second = before.another("second")
	s := before.nodes[0]
	if _, err := s.CreateAccount(t.Context(), relay.System(), "bob", false); err != nil {
		t.Fatal(err)
	}
	other, err := s.CreateAlias(t.Context(), relay.System(), "of-bob", "bob")
	if err != nil {
		t.Fatal(err)
	}
	before.holdEvictions()
	if of == "alias" {
		o.MaxAliasStorage = limit
	} else {
		o.MaxAccountStorage, o.AccountLimits = limit, true
	}
	c = newTestCluster(t, 1, o)
	c.alias = before.alias
	for c.nodes[0].usage.Total() < 200*20<<10 { // the node counts the stored bytes in the background
		<-time.After(10 * time.Millisecond)
	}
	return c, second, other.ID
}

// A request to an alias or account far above a lowered limit evicts only about as many bytes as the request
// needs. The number of stored bytes never rises above its value at the start of the test.
func TestEvictionForARequestFreesWhatItNeeds(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"alias", "account"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			c, second, _ := farAbove(t, of)
			s, alias := c.nodes[0], c.alias
			if of == "account" {
				alias = second // the alias second stores nothing, but its account is above the limit
			}
			stored := func() int { return c.count(`SELECT SUM(` + events.PayloadBytes + `) FROM payloads`) }
			first, need := stored(), 30<<10
			last := first
			for range 5 {
				if e := s.Capacity(alias, int64(need), 20*time.Second); e != nil {
					t.Fatalf("refused: %v", e)
				}
				left := stored()
				if last-left > 4*need {
					t.Errorf("%d bytes were removed for a request of %d", last-left, need)
				}
				c.alias = alias
				c.add(1, need-1<<10, time.Now(), relay.StateDelivering)
				if last = stored(); last > first {
					t.Errorf("%d bytes are stored, more than the %d before", last, first)
				}
			}
			if first-last < 5*need/2 {
				t.Errorf("only %d bytes less are stored after requests of %d", first-last, 5*need)
			}
		})
	}
}

// While an eviction for a request of an account runs, another request of that account is refused. Evictions of
// other accounts, and those by the loop of the store, continue.
func TestEvictionsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	c, second, foreign := farAbove(t, "account")
	s := c.nodes[0]
	alice := usage.Holder{Account: true, ID: s.usage.OwnerOf(c.alias)}
	s.usage.Turn(alice) <- struct{}{} // an eviction for a request holds this token while it runs: see usage.Turn
	if e := s.Capacity(c.alias, 1, 10*time.Millisecond); e == nil || e.Code != relay.CodeStorageFull {
		t.Errorf("a request that needs the same eviction: %v", e)
	}
	c.alias = foreign
	c.add(6, 20<<10, time.Now().Add(-time.Minute), relay.StateDelivering)
	c.exec(`UPDATE attempts SET state = 2`)
	c.exec(`UPDATE events SET state = 2`)
	if e := s.Capacity(foreign, 1<<10, 20*time.Second); e != nil {
		t.Errorf("a request of another account: %v", e)
	}
	before := s.usage.Total()
	if err := s.EvictOverLimit(t.Context(), true); err != nil || s.usage.Total() >= before {
		t.Errorf("the loop has removed nothing: %v", err)
	}
	<-s.usage.Turn(alice)
	if e := s.Capacity(second, 1, 20*time.Second); e != nil {
		t.Errorf("the next request: %v", e)
	}
}

// A request that waits for an eviction is admitted as soon as there is space, even if the eviction has not
// ended.
func TestSpaceOfAnEvictionThatGoesOn(t *testing.T) {
	t.Parallel()
	c, second, _ := farAbove(t, "account")
	s := c.nodes[0]
	alice := usage.Holder{Account: true, ID: s.usage.OwnerOf(c.alias)}
	s.usage.Turn(alice) <- struct{}{} // an eviction for a request holds this token while it runs: see usage.Turn
	answer := make(chan *relay.Error, 1)
	go func() { answer <- s.Capacity(second, 1<<10, time.Minute) }()
	s.usage.Add(c.alias, -s.usage.Total())
	if e := <-answer; e != nil {
		t.Errorf("a request that has space: %v", e)
	}
}
