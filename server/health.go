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

// Times of a readiness check: an answer is at most readyFresh + readyPatience old,
// and nobody waits longer than readyPatience.
const (
	readyFresh    = time.Second
	readyPatience = 4 * time.Second
)

// verdict is the answer of /readyz.
type verdict struct {
	Status   string   `json:"status"` // ok or unavailable
	Degraded []string `json:"degraded"`
	Reasons  []string `json:"reasons,omitempty"` // why unavailable
}

// readiness asks one question for all who want to know.
type readiness struct {
	ask func(ctx context.Context) (degraded, reasons []string)

	mu      sync.Mutex
	last    verdict
	asked   time.Time     // when the last answer was asked for; zero = never
	running chan struct{} // closed when the question under way is answered; nil = none
}

func newReadiness(ask func(context.Context) (degraded, reasons []string)) *readiness {
	return &readiness{ask: ask}
}

// verdict is at most readyFresh old, or asked for now. Who waits too long is told
// that there was no answer.
func (r *readiness) verdict(ctx context.Context) verdict {
	if r.ask == nil {
		return judge(nil, nil)
	}
	r.mu.Lock()
	if r.running == nil && !r.asked.IsZero() && time.Since(r.asked) < readyFresh {
		defer r.mu.Unlock()
		return r.last
	}
	if r.running == nil {
		r.running = make(chan struct{})
		go r.question(r.running)
	}
	running := r.running
	r.mu.Unlock()
	t := time.NewTimer(readyPatience)
	defer t.Stop()
	select {
	case <-running:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.last
	case <-t.C:
	case <-ctx.Done():
	}
	return judge(nil, []string{"no answer within " + readyPatience.String()})
}

// question asks once; done tells the others.
func (r *readiness) question(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), readyPatience)
	defer cancel()
	asked := time.Now()
	v := judge(r.ask(ctx))
	r.mu.Lock()
	r.last, r.asked, r.running = v, asked, nil
	r.mu.Unlock()
	close(done)
}

func judge(degraded, reasons []string) verdict {
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
	v := judge(nil, []string{"stopping"})
	if !s.stopping.Load() {
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
