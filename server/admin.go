package server

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"relay"
	"relay/sockets"
)

// AdminOptions configure the handler of the admin listener.
type AdminOptions struct {
	// Stats returns the counts of the other packages. It is called once for each
	// request.
	Stats func() Stats
	// Registry holds the metrics of /metrics; the collectors of Go and of the process are added to it.
	// nil = only these collectors.
	Registry *prometheus.Registry
	// Loopback says that the listener is on loopback. Then only requests with a loopback Host are
	// answered, so that no web page can reach the listener through a DNS name that resolves to
	// loopback.
	Loopback bool
	// Health answers /healthz and /readyz on this listener, where probes need no PROXY header; nil = not
	// served.
	Health http.Handler
	// Pprof adds /debug/pprof/, without its cmdline page, because the arguments of the process may
	// contain a database password.
	Pprof bool
}

// Stats are the counts of other packages in /debug/stats.
type Stats struct {
	Tunnels    int    `json:"tunnels"`  // online or stale
	Channels   int    `json:"channels"` // open towards local servers
	Queued     int    `json:"queued"`   // queued attempts
	SpoolBytes int64  `json:"spoolBytes"`
	Committed  int64  `json:"committed"` // steps that were committed since the start of this process
	Version    string `json:"version"`
	Node       string `json:"node"`  // name of this node
	Peers      int    `json:"peers"` // other nodes whose tunnels can be used
	// ForwardedOut is the number of channels that this node has opened through other nodes, and ForwardedIn is
	// the number of channels that other nodes have opened through this one, both since the start of this process.
	ForwardedOut int64 `json:"forwardedOut"`
	ForwardedIn  int64 `json:"forwardedIn"`

	// Counts of connections and rate limits, as JSON; nil = left out.
	HTTP   any `json:"http,omitempty"`
	SSH    any `json:"ssh,omitempty"`
	Limits any `json:"limits,omitempty"`
}

// processStats is the JSON of /debug/stats.
type processStats struct {
	Goroutines int   `json:"goroutines"`
	OpenFds    int   `json:"openFds"`  // -1 = there is no /proc
	RSSBytes   int64 `json:"rssBytes"` // -1 = there is no /proc
	Stats
}

// Admin returns the handler of /metrics, /debug/stats, the health checks and, with Pprof, /debug/pprof/.
func Admin(o AdminOptions) http.Handler {
	o.Registry = cmp.Or(o.Registry, prometheus.NewRegistry())
	o.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/stats", func(w http.ResponseWriter, _ *http.Request) {
		all := processStats{Goroutines: runtime.NumGoroutine(), OpenFds: -1, RSSBytes: -1}
		if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
			// The list includes the descriptor that ReadDir itself has opened.
			all.OpenFds = len(fds) - 1
		}
		memory, _ := os.ReadFile("/proc/self/statm")
		var pages, resident int64
		if _, err := fmt.Sscan(string(memory), &pages, &resident); err == nil {
			all.RSSBytes = resident * int64(os.Getpagesize())
		}
		if o.Stats != nil {
			all.Stats = o.Stats()
		}
		writeJSON(w, http.StatusOK, all)
	})
	if o.Health != nil {
		mux.Handle("/healthz", o.Health)
		mux.Handle("/readyz", o.Health)
	}
	if o.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, ok := splitHost(r.Host); o.Loopback && !(ok && sockets.IsLoopback(name)) {
			writeProblem(w, relay.Errorf(relay.CodeHostUnknown, "the admin listener answers only to localhost and loopback addresses"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}
