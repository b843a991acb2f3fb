package server

import (
	"net/url"
	"testing"

	"relay"
	"relay/relaytest"
)

// TestWorstBytes: a Host line is read in time in proportion to its
// length.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	h := newHosts(relay.Site{Base: url.URL{Scheme: "http", Host: "example.com"}, AliasDomain: "example.com"})
	relaytest.WorstBytes(t, 128<<10, func(p []byte) {
		h.find(string(p))
		h.find(string(p) + ".example.com")
	})
}
