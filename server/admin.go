package server

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"relay"
)

// AdminOptions are what the handler of the admin listener is made of.
type AdminOptions struct {
	// Stats gives the counts of the other rooms; asked once for each request.
	Stats func() Stats
	// Registry holds what /metrics shows; the collectors of Go and of the process
	// are added to it. nil = only these.
	Registry *prometheus.Registry
	// Loopback is set when the listener is on loopback: then only requests that
	// name a loopback host are answered, so that no web page reaches it through a
	// name of its own.
	Loopback bool
	Log      *slog.Logger // nil = discarded
}

// Stats are the counts that /debug/stats takes from elsewhere.
type Stats struct {
	Tunnels    int // online or stale
	Channels   int // open towards local servers
	Queued     int // attempts that wait
	SpoolBytes int64
	Committed  int64 // steps of the journal since start
	Version    string

	HTTP, SSH, Limits any // what stands at each door, as JSON; nil = left out
}

// processStats is the JSON of /debug/stats.
type processStats struct {
	Goroutines int    `json:"goroutines"`
	OpenFds    int    `json:"openFds"`  // -1 = unknown
	RSSBytes   int64  `json:"rssBytes"` // -1 = unknown
	Tunnels    int    `json:"tunnels"`
	Channels   int    `json:"channels"`
	Queued     int    `json:"queued"`
	SpoolBytes int64  `json:"spoolBytes"`
	Committed  int64  `json:"committed"`
	Version    string `json:"version"`

	HTTP   any `json:"http,omitempty"`
	SSH    any `json:"ssh,omitempty"`
	Limits any `json:"limits,omitempty"`
}

// Admin answers /metrics, /debug/stats and /debug/pprof/.
func Admin(o AdminOptions) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	addCollectors(o.Registry, o.Log)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/stats", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, gather(o.Stats))
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.Loopback && !isLoopback(r.Host) {
			writeProblem(w, relay.Errorf(relay.CodeHostUnknown, "the admin listener answers only to localhost and loopback addresses"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func addCollectors(reg *prometheus.Registry, log *slog.Logger) {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		var twice prometheus.AlreadyRegisteredError
		if err := reg.Register(c); err != nil && !errors.As(err, &twice) {
			log.Warn("register collector", "err", err)
		}
	}
}

func gather(stats func() Stats) processStats {
	var s Stats
	if stats != nil {
		s = stats()
	}
	return processStats{
		Goroutines: runtime.NumGoroutine(),
		OpenFds:    openFds(),
		RSSBytes:   rssBytes(),
		Tunnels:    s.Tunnels,
		Channels:   s.Channels,
		Queued:     s.Queued,
		SpoolBytes: s.SpoolBytes,
		Committed:  s.Committed,
		Version:    s.Version,
		HTTP:       s.HTTP, SSH: s.SSH, Limits: s.Limits,
	}
}

// isLoopback tells whether a Host value names this machine to itself.
func isLoopback(host string) bool {
	name, ok := splitHost(host)
	return ok && isLoopbackName(name)
}

// isLoopbackName is isLoopback for a name that splitHost gave.
func isLoopbackName(name string) bool {
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || (err == nil && ip.IsLoopback())
}
