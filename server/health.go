package server

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// isHealth tells whether a path is one of the health checks.
func isHealth(path string) bool { return path == "/healthz" || path == "/readyz" }

// An answer of /readyz is at most readyMaxAge + readyTimeout old, and nobody waits for
// it longer than readyTimeout.
const (
	readyMaxAge  = time.Second
	readyTimeout = 4 * time.Second
)

// verdict is the answer of /readyz.
type verdict struct {
	Status   string   `json:"status"` // ok or unavailable
	Degraded []string `json:"degraded"`
	Reasons  []string `json:"reasons,omitempty"` // why unavailable
}

// readiness calls ask once for all requests that wait, and keeps the answer for
// readyMaxAge.
type readiness struct {
	ask func(ctx context.Context) (degraded, reasons []string)

	mu      sync.Mutex
	last    verdict
	asked   time.Time     // when the call that returned last began; zero = never
	running chan struct{} // closed when the running call returns; nil = none runs
}

func newReadiness(ask func(context.Context) (degraded, reasons []string)) *readiness {
	return &readiness{ask: ask}
}

// verdict returns the kept verdict or a new one. After readyTimeout it returns one that
// says that there was no answer.
func (r *readiness) verdict(ctx context.Context) verdict {
	if r.ask == nil {
		return newVerdict(nil, nil)
	}
	r.mu.Lock()
	if r.running == nil && !r.asked.IsZero() && time.Since(r.asked) < readyMaxAge {
		defer r.mu.Unlock()
		return r.last
	}
	if r.running == nil {
		r.running = make(chan struct{})
		go r.refresh(r.running)
	}
	running := r.running
	r.mu.Unlock()
	t := time.NewTimer(readyTimeout)
	defer t.Stop()
	select {
	case <-running:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.last
	case <-t.C:
	case <-ctx.Done():
	}
	return newVerdict(nil, []string{"no answer within " + readyTimeout.String()})
}

// refresh calls ask once and closes done.
func (r *readiness) refresh(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	asked := time.Now()
	v := newVerdict(r.ask(ctx))
	r.mu.Lock()
	r.last, r.asked, r.running = v, asked, nil
	r.mu.Unlock()
	close(done)
}

func newVerdict(degraded, reasons []string) verdict {
	v := verdict{Status: "ok", Degraded: degraded, Reasons: reasons}
	if len(reasons) > 0 {
		v.Status = "unavailable"
	}
	if v.Degraded == nil {
		v.Degraded = []string{}
	}
	return v
}

// serveHealth answers /healthz and /readyz.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"status": "use GET"})
		return
	}
	if r.URL.Path == "/healthz" {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	var v verdict
	switch {
	case s.stopping.Load():
		v = newVerdict(nil, []string{"stopping"})
	case s.draining.Load():
		v = newVerdict(nil, []string{"draining"})
	default:
		v = s.ready.verdict(r.Context())
	}
	status := http.StatusOK
	if len(v.Reasons) > 0 {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, v)
}

// writeJSON answers with a value that is known to encode.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
