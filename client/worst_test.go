package client

import (
	"strings"
	"testing"

	"relay/relaytest"
)

// TestWorstBytes: the time to read a webhooks.yaml, which may come from an untrusted repository, is
// proportional to its size.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(p []byte){
		"configuration": func(p []byte) { _, _ = parseConfig(p) },
		"alias of a configuration": func(p []byte) {
			_, _ = parseConfig(append([]byte("version: 1\naliases:\n  a: {port: 1}\n  "), p...))
		},
		"target": func(p []byte) { _, _ = ParseTarget(string(p)) },
		"server": func(p []byte) { _, _, _, _ = SplitServer(string(p)) },
		"answer": func(p []byte) { refusesHost(append([]byte("HTTP/1.1 403 No\r\n\r\n"), p...)); speaksTLS(p) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, maxConfig-64, f)
		})
	}
}

func TestLongConfiguration(t *testing.T) {
	t.Parallel()
	if _, err := parseConfig([]byte("version: 1\n#" + strings.Repeat("x", maxConfig))); err == nil || !strings.Contains(err.Error(), "more than the 16384") {
		t.Errorf("a long file: %v", err)
	}
}
