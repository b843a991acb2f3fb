package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/relaytest"
)

// TestWorstBytes: the time to read settings is proportional to their length, even for text from a template or
// a secret store. The YAML parser takes seconds for 64 KiB of brackets, so the size of the configuration file
// is bounded.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	const most = 4 << 10
	path := filepath.Join(t.TempDir(), "relayd.yaml")
	var c Config
	list := c.settings()
	seen := map[string]bool{}
	relaytest.WorstBytes(t, most, func(p []byte) {
		if err := os.WriteFile(path, p, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = readConfigFile(path, list)
		clear(seen)
		for _, s := range list {
			if !seen[s.kind] {
				seen[s.kind] = true
				_ = s.set(string(p))
			}
		}
	})
}

func TestLongSettingsFile(t *testing.T) {
	t.Parallel()
	path := write(t, "relayd.yaml", "# "+strings.Repeat("x", maxConfigFile))
	var c Config
	if _, err := readConfigFile(path, c.settings()); err == nil || !strings.Contains(err.Error(), "more than the 65536") {
		t.Errorf("%v", err)
	}
}
