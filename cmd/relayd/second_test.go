package main

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"relay/relaytest"
	"relay/store"
)

// TestSecondServerTouchesNothing: if another server uses its data dir, a server ends before it listens, and
// before it migrates the schema of the other server.
func TestSecondServerTouchesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := store.Open(t.Context(), store.Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if err := first.LockDataDir(); err != nil {
		t.Fatal(err)
	}
	nothing := func(string) string { return "" }
	cfg, _, err := load(sources{getenv: nothing, flags: map[string]string{
		"http-addr": "127.0.0.1:0", "ssh-addr": "127.0.0.1:0", "admin-addr": off, "data-dir": dir,
	}})
	if err != nil {
		t.Fatal(err)
	}
	log := &relaytest.Buffer{}
	err = newApp(&program{getenv: nothing, stdout: io.Discard, stderr: log}, cfg).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another relayd already serves "+dir) {
		t.Errorf("it said %v", err)
	}
	if strings.Contains(log.String(), "listening") {
		t.Errorf("it listened: %s", log)
	}
	if have, _, err := first.Schema(t.Context()); have != 0 || err != nil {
		t.Errorf("it migrated to %d (%v)", have, err)
	}
}
