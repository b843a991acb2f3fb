package sshgate

import (
	"net/url"
	"testing"

	"relay"
	"relay/relaytest"
)

// TestWorstBytes: the bind address of an SSH client is parsed in a time proportional to its length.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	site := relay.Site{Base: url.URL{Scheme: "http", Host: "example.com"}, AliasDomain: "example.com"}
	relaytest.WorstBytes(t, 128<<10, func(p []byte) {
		_, _ = parseBind(string(p), &site)
	})
}
