package cli

import (
	"bytes"
	"testing"

	"relay/relaytest"
)

// TestWorstBytes: the time to read a live stream is proportional to its size.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	relaytest.WorstBytes(t, 1<<20, func(p []byte) {
		_ = readStream(bytes.NewReader(append([]byte("event: a\ndata: "), p...)), func(_, _ string, _ []byte) error { return nil })
	})
}
