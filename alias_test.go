package relay_test

import (
	"strings"
	"testing"

	"relay"
)

func TestValidLabel(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "0", "stripe-dev", "a--b", strings.Repeat("x", 63)} {
		if !relay.ValidLabel(good) {
			t.Errorf("%q refused", good)
		}
	}
	for _, bad := range []string{
		"", "-a", "a-", "A", "a.b", "a_b", "a b", "é", "a\x00", strings.Repeat("x", 64), "a\n",
	} {
		if relay.ValidLabel(bad) {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestReservedLabel(t *testing.T) {
	t.Parallel()
	for _, l := range strings.Fields("www api app admin login dashboard mail relay link git root static assets autodiscover wpad localhost xn--80ak6aa92e") {
		if !relay.ReservedLabel(l) {
			t.Errorf("%q is free", l)
		}
	}
	if relay.ReservedLabel("stripe-dev") {
		t.Error("stripe-dev is reserved")
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	s, err := relay.ParseScopes([]string{"events:read", "account"})
	if err != nil || s != relay.ScopeEventsRead|relay.ScopeAccount {
		t.Fatalf("ParseScopes = %b, %v", s, err)
	}
	if got := strings.Join(s.Names(), " "); got != "events:read account" {
		t.Errorf("Names = %q", got)
	}
	if all, err := relay.ParseScopes(nil); err != nil || all != relay.AllScopes || len(all.Names()) != 8 {
		t.Errorf("no scopes = %b, %v; want all", all, err)
	}
	if _, err := relay.ParseScopes([]string{"events"}); err == nil {
		t.Error("unknown scope accepted")
	}
}
