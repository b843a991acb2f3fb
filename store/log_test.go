package store_test

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
)

// testLog writes the operator log to the log of the test.
func testLog(t *testing.T) *slog.Logger {
	w := &testWriter{t: t}
	t.Cleanup(func() { w.mu.Lock(); w.t = nil; w.mu.Unlock() })
	return slog.New(slog.NewTextHandler(w, nil))
}

type testWriter struct {
	mu sync.Mutex
	t  *testing.T
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(string(bytes.TrimSpace(p)))
	}
	return len(p), nil
}
