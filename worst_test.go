package relay_test

import (
	"testing"

	"relay"
	"relay/relaytest"
)

// TestWorstBytes: ids, durations and labels from strangers are parsed in time proportional to their
// length.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	relaytest.WorstBytes(t, 128<<10, func(p []byte) {
		_, _ = relay.ParseID(string(p))
		_, _ = relay.ParseDuration(string(p))
		_ = relay.ValidLabel(string(p))
		_ = relay.ReservedLabel(string(p))
	})
}
