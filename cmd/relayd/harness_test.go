package main

import (
	"bytes"
	"os/exec"
	"sync"
	"testing"
	"time"

	"relay/store/pgtest"
)

// needTool fails, not skips: a test that did not run proves nothing.
func needTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed; `make setup` does that", name)
	}
	return path
}

func lookPath(name string) string {
	path, _ := exec.LookPath(name)
	return path
}

// poll asks until ok or the time is over: four times what a quiet machine may take.
func poll(limit time.Duration, ok func() bool) bool {
	late := time.NewTimer(4 * limit)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-late.C:
			return ok()
		case <-tick.C:
		}
	}
	return true
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// onStores runs a test on SQLite and on Postgres.
func onStores(t *testing.T, test func(t *testing.T, flags map[string]string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, nil) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, postgresFlags(t)) })
}

func postgresFlags(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"database-url": pgtest.URL(t)}
}
