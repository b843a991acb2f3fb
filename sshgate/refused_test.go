package sshgate

import (
	"slices"
	"testing"

	"relay"
)

// TestRefusedForwardsAreNoted: a refused forward is stored only for the account that requested it, until a forward of
// that alias by that account is accepted.
func TestRefusedForwardsAreNoted(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	bobs := b.newKey("bob", 2)
	alice, bob := b.mustDial(b.alice), b.mustDial(bobs)
	forwards(t, alice, "taken", 80)
	if ok, _ := forwards(t, bob, "taken", 80); ok {
		t.Fatal("another account's alias was let in")
	}
	forwards(t, bob, "no\x1bname", 80)
	noted := func(account int64) []relay.RefusedForward {
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		return slices.Clone(b.store.refused[account])
	}
	list := noted(bobs.actor.Account)
	if len(list) != 2 || list[0].Bind != "taken" || list[1].Bind != `no\x1bname` {
		t.Fatalf("refused to bob: %+v", list)
	}
	if list[0].Code != relay.CodeNotFound || list[0].Message == "" || !list[0].Remote.IsValid() {
		t.Errorf("what is noted: %+v", list[0])
	}
	if list := noted(b.alice.actor.Account); len(list) != 0 {
		t.Errorf("alice is told %+v", list)
	}
	b.store.mu.Lock()
	b.store.members["taken"] = append(b.store.members["taken"], bobs.actor.Account)
	b.store.mu.Unlock()
	if ok, _ := forwards(t, bob, "taken", 80); !ok {
		t.Fatal("a member's forward was refused")
	}
	if list := noted(bobs.actor.Account); len(list) != 1 || list[0].Bind == "taken" {
		t.Errorf("after it was allowed: %+v", list)
	}
}
