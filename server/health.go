package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
)

// isHealth reports whether a path is one of the health checks.
func isHealth(path string) bool { return path == "/healthz" || path == "/readyz" }

// Bounds of the age and the duration of an answer of /readyz: it is at most readyMaxAge + readyTimeout
// old, and takes at most readyTimeout.
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

// readiness calls ask once for all waiting requests, and reuses the result for readyMaxAge.
type readiness struct {
	ask   func(ctx context.Context) (degraded, reasons []string) // nil = the server is always ready
	calls singleflight.Group

	// Only refresh uses last and asked, and no two calls of refresh run at the same time.
	last  verdict
	asked time.Time // start of the call of ask whose result is in last; zero = ask was not called yet
}

// verdict returns the last verdict, or a new one if that is too old. If there is none within readyTimeout, it
// returns the verdict "unavailable".
func (r *readiness) verdict(ctx context.Context) verdict {
	if r.ask == nil {
		return newVerdict(nil, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case answer := <-r.calls.DoChan("", r.refresh):
		return answer.Val.(verdict)
	case <-ctx.Done():
		return newVerdict(nil, []string{"no answer within " + readyTimeout.String()})
	}
}

func (r *readiness) refresh() (any, error) {
	asked := time.Now()
	if r.asked.IsZero() || asked.Sub(r.asked) >= readyMaxAge {
		ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
		defer cancel()
		r.last = newVerdict(r.ask(ctx))
		r.asked = asked
	}
	return r.last, nil
}

func newVerdict(degraded, reasons []string) verdict {
	// The list is empty instead of nil, because nil would be null in JSON.
	v := verdict{Status: "ok", Degraded: append([]string{}, degraded...), Reasons: reasons}
	if len(reasons) > 0 {
		v.Status = "unavailable"
	}
	return v
}

// Health returns a handler of /healthz and /readyz, for listeners other than those of the server.
func (s *Server) Health() http.Handler { return http.HandlerFunc(s.serveHealth) }

// serveHealth answers /healthz and /readyz.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"status": "use GET"})
		return
	}
	if r.URL.Path == "/healthz" {
		writeJSON(w, http.StatusOK, s.alive(r))
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

// maxNonce is the longest nonce that /healthz repeats.
const maxNonce = 64

// alive returns the answer of /healthz. If the request has a nonce, the answer has that nonce and the
// fingerprint of the SSH host key. A check from outside can then tell whether an address leads to this relay.
func (s *Server) alive(r *http.Request) map[string]string {
	answer := map[string]string{"status": "ok"}
	if nonce := r.URL.Query().Get("nonce"); nonce != "" && len(nonce) <= maxNonce {
		answer["nonce"], answer["hostKey"] = nonce, s.opt.HostKey
	}
	return answer
}

// writeJSON answers with a value that can always be encoded.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
