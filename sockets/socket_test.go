package sockets_test

import (
	"net/netip"
	"testing"

	"relay/sockets"
)

func TestSources(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"203.0.113.9": "203.0.113.9/32", "::ffff:203.0.113.9": "203.0.113.9/32",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := sockets.SourceOf(netip.MustParseAddr(from)).String(); got != want {
			t.Errorf("%s: got source %q, want %q", from, got, want)
		}
	}
	if sockets.SourceOf(netip.Addr{}).IsValid() {
		t.Error("no address counts as a source")
	}
}
