package sshgate

import (
	"fmt"
	"testing"
	"time"

	"relay"
)

// What was refused to an account can be looked up by it, and by nobody else, until it
// is let in or an hour has passed.
func TestRefusedForwardsAreRemembered(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	bobs := b.newKey("bob", 2)
	alice, bob := b.mustDial(b.alice), b.mustDial(bobs)
	forwards(t, alice, "taken", 80)
	for range 2 {
		if ok, _ := forwards(t, bob, "taken", 80); ok {
			t.Fatal("another account's alias was let in")
		}
	}
	forwards(t, bob, "no\x1bname", 80)
	list := b.srv.Refused(bobs.actor.Account)
	if len(list) != 2 || list[0].Bind != `no\x1bname` || list[0].Times != 1 || list[1].Bind != "taken" || list[1].Times != 2 {
		t.Fatalf("refused to bob: %+v", list)
	}
	if list[1].Code != relay.CodeNotFound || list[1].Message == "" || !list[1].Remote.IsValid() || time.Since(list[1].At) > time.Minute {
		t.Errorf("what is told: %+v", list[1])
	}
	if list := b.srv.Refused(b.alice.actor.Account); len(list) != 0 {
		t.Errorf("alice is told %+v", list)
	}
}

func TestRefusedIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := newRefusedForwards()
	r.now = func() time.Time { return now }
	for i := range 2 * maxRefusedAccounts {
		now = now.Add(time.Millisecond)
		r.note(int64(i), relay.RefusedForward{Bind: "a"})
	}
	if len(r.byAccount) != maxRefusedAccounts || len(r.byAccount[2*maxRefusedAccounts-1]) != 1 || r.byAccount[0] != nil {
		t.Errorf("%d accounts are remembered", len(r.byAccount))
	}
	last := int64(2*maxRefusedAccounts - 1)
	for i := range 3 * maxRefusedPerAccount {
		r.note(last, relay.RefusedForward{Bind: fmt.Sprint("b", i)})
	}
	if list := r.byAccount[last]; len(list) != maxRefusedPerAccount || list[0].Bind != fmt.Sprint("b", 3*maxRefusedPerAccount-1) {
		t.Errorf("%+v", list)
	}
	r.forget(last, fmt.Sprint("b", 3*maxRefusedPerAccount-1))
	if list := r.byAccount[last]; len(list) != maxRefusedPerAccount-1 {
		t.Errorf("what was let in is still listed: %+v", list)
	}
	now = now.Add(refusedFor)
	if list := r.fresh(last); len(list) != 0 || r.byAccount[last] != nil {
		t.Errorf("after an hour: %+v", list)
	}
}
