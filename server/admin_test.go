package server

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestAdmin(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	o := AdminOptions{
		Stats: func() Stats {
			return Stats{Tunnels: 1, Channels: 2, Queued: 3, SpoolBytes: 4, Committed: 5, Version: "v1"}
		},
		Registry: reg,
		Loopback: true,
	}
	h := Admin(o)
	get := func(host, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var stats map[string]any
	if err := json.Unmarshal(get("127.0.0.1:9091", "/debug/stats").Body.Bytes(), &stats); err != nil {
		t.Fatal(err)
	}
	keys := []string{"channels", "committed", "forwardedIn", "forwardedOut", "goroutines", "node", "openFds", "peers", "queued", "rssBytes", "spoolBytes", "tunnels", "version"}
	if diff := cmp.Diff(keys, slices.Sorted(maps.Keys(stats))); diff != "" {
		t.Error(diff)
	}
	if runtime.GOOS == "linux" && (stats["openFds"].(float64) < 3 || stats["rssBytes"].(float64) < 1<<20) {
		t.Errorf("got %v", stats)
	}
	if stats["queued"] != 3.0 || stats["committed"] != 5.0 || stats["version"] != "v1" {
		t.Errorf("got %v", stats)
	}
	if w := get("localhost", "/metrics"); w.Code != 200 || !strings.Contains(w.Body.String(), "go_goroutines") {
		t.Errorf("metrics: got %d", w.Code)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline"} {
		if w := get("[::1]:9091", path); w.Code != 404 {
			t.Errorf("%s without Pprof: got %d", path, w.Code)
		}
	}
	o.Pprof, o.Registry = true, nil
	h = Admin(o)
	for path, want := range map[string]int{
		"/debug/pprof/": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/symbol": 200, "/debug/pprof/cmdline": 404,
	} {
		w := get("[::1]:9091", path)
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
		if strings.Contains(w.Body.String(), "-test.") { // the test program has arguments that begin with -test.
			t.Errorf("%s tells the arguments of the process", path)
		}
	}
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:9091": 200, "127.8.9.1": 200, "[::1]": 200,
		"relay.test": 421, "": 421, "10.0.0.1": 421, "localhost.evil.test": 421, "127.0.0.1.nip.io": 421, "a@localhost": 421,
	} {
		if w := get(host, "/debug/stats"); w.Code != want {
			t.Errorf("%q: got %d, want %d", host, w.Code, want)
		}
	}
}
