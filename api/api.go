// Package api is the office: everything under /api/, version 1 of it. Every
// request passes one door (ServeHTTP) and one guard before it reaches a handler;
// every error leaves as problem+json.
//
// Checks come in a fixed order: who asks (401), the method (405), what the
// credential allows (403), what the path names (404), the input (422), the state
// of things (409), the rate (429). What the asker may not see and what does not
// exist are the same answer.
package api

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"relay"
)

// Prefix is the path below which version 1 lives.
const Prefix = "/api/v1"

// maxBody bounds the body of an API request, in bytes.
const maxBody = 1 << 20

// Rate allows N calls per Per, all of them at once at first. N <= 0 is no limit.
type Rate struct {
	N   int
	Per time.Duration
}

// Options are what an API is made of. Deliver, Events and Accounts are needed.
type Options struct {
	Deliver  Deliverer
	Events   Events
	Accounts Accounts
	Site     relay.Site
	Log      *slog.Logger // nil = nothing is logged
	Version  string       // of the program, named as the maker of exported files

	ReplayLimit      Rate // per token or session
	ShareReplayLimit Rate // per share token
	// Limits are the buckets when another front counts in them too; nil = own ones of
	// the two rates above.
	Limits *Limits

	HostKeys []relay.HostKey       // what the SSH side shows, for clients that pin them
	Registry prometheus.Registerer // is given the figures of docs/metrics.md; nil = none
}

// server is the handler that New gives.
type server struct {
	Options
	mux    *http.ServeMux
	huma   huma.API
	routes map[string]*route // by mux pattern
	origin *http.CrossOriginProtection

	openapi []byte
	metrics *metrics
}

// New gives the handler for everything under /api/. It is safe for concurrent use
// and starts no goroutines; streams and waiting requests end with their contexts.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Limits == nil {
		o.Limits = NewLimits(o.ReplayLimit, o.ShareReplayLimit)
	}
	s := &server{
		Options: o,
		mux:     http.NewServeMux(),
		routes:  map[string]*route{},
		origin:  http.NewCrossOriginProtection(),
	}
	s.huma = s.newHuma()
	s.addAccountRoutes()
	s.addAliasRoutes()
	s.addEventRoutes()
	s.addRawRoutes()
	s.addReplayRoutes()
	s.addShareRoutes()
	s.addStreamRoute()
	s.addExportRoute()
	s.addSSHRoute()
	s.addOpenAPIRoute()
	s.metrics = newMetrics(o.Registry, o.Limits, s.routes)
	return s
}
