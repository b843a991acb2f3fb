package api

import (
	"testing"

	"relay"
)

// TestRefusedWaitsOfAnAgentTakeNoPlace: too many waits of an agent are refused by the limit of its
// credential, and a refused wait takes no slot of the account.
func TestRefusedWaitsOfAnAgentTakeNoPlace(t *testing.T) {
	t.Parallel()
	l := NewLimits(Rate{}, Rate{})
	agent := relay.Actor{Kind: relay.ActorToken, Account: 1, Credential: "tok_1", Via: "mcp x"}
	var leave []func()
	for range maxAgentWaits {
		release, err := l.Wait(agent)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, release)
	}
	for range 2 * maxOpenPerAccount {
		if _, err := l.Wait(agent); err == nil {
			t.Fatal("one more wait than a credential has")
		}
	}
	if open := l.Stats().Waits; open != maxAgentWaits {
		t.Errorf("%d waits are open", open)
	}
	other := agent
	other.Credential, other.Via = "tok_2", ""
	release, err := l.Wait(other)
	if err != nil {
		t.Fatalf("another credential of the account: %v", err)
	}
	release()
	for _, release := range leave {
		release()
	}
	if open := l.Stats().Waits; open != 0 {
		t.Errorf("%d waits are still open", open)
	}
}

// TestLookUpsWithoutAStoreAreNoGuesses: a look-up that failed in the store does not count as a wrong
// credential.
func TestLookUpsWithoutAStoreAreNoGuesses(t *testing.T) {
	t.Parallel()
	l := NewLimits(Rate{}, Rate{})
	for range 2 * sourceRate.N {
		err := l.LookUpSecret("192.0.2.1:1", "rly_x", func() error { return relay.Errorf(relay.CodeStoreUnavailable, "away") })
		if relay.AsError(err).Code != relay.CodeStoreUnavailable {
			t.Fatal(err)
		}
	}
	if err := l.LookUpSecret("192.0.2.1:1", "rly_y", func() error { return nil }); err != nil {
		t.Error(err)
	}
}
