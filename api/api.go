// Package api serves version 1 of the HTTP API, everything under /api/. Every request
// passes ServeHTTP and the checks of its route before it reaches a handler; every
// error is sent as problem+json.
//
// Checks come in a fixed order: credential (401), method (405), scope (403), the
// resource in the path (404), input (422), state of the resource (409), rate (429).
// A resource that the client may not see and one that does not exist give the same
// answer.
package api

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/budget"
	"relay/compose"
	"relay/mcp"
)

// Prefix is the beginning of the paths of all routes of version 1.
const Prefix = "/api/v1"

// maxBody bounds the body of an API request, in bytes.
const maxBody = 1 << 20

// Rate allows N calls in a time of length Per. After a pause of that length, all N calls may come at the same
// time. N <= 0 is no limit.
type Rate struct {
	N   int
	Per time.Duration
}

// Options configure an API. Deliver, Events, Accounts, Nodes and Limits are required.
type Options struct {
	Deliver  Deliverer
	Events   Events
	Accounts Accounts
	Nodes    Nodes
	Site     relay.Site
	Log      *slog.Logger       // nil = nothing is logged
	Version  string             // version of the program, which exported files name
	Limits   *Limits            // shared with the dashboard and the SSH server
	Sending  compose.Limits     // limits of new events, equal to those of the listener for aliases
	Secrets  relay.SecretOpener // decrypts the secrets for signatures of new events
	// Budget bounds the memory for answers, from before they are built until the client has read them;
	// nil = no bound.
	Budget *budget.Budget

	MCP bool // agents are served at MCPPath

	HostKeys []relay.HostKey       // host keys of the SSH server, for clients that pin them
	Registry prometheus.Registerer // gets the metrics of docs/metrics.md; nil = no metrics
}

// server is the handler that New returns.
type server struct {
	Options
	mux    *http.ServeMux
	huma   huma.API
	routes map[string]*route // routes by their mux pattern
	origin *http.CrossOriginProtection
	agents *mcp.Handler

	openapi   []byte
	reference []byte // the page of GET /docs
	metrics   *metrics
}

// New returns the handler for everything under /api/. It is safe for concurrent use and starts no
// goroutines; streams and waiting requests end with their contexts.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &server{
		Options: o,
		mux:     http.NewServeMux(),
		routes:  map[string]*route{},
		origin:  http.NewCrossOriginProtection(),
		agents:  mcp.NewHandler(o.Version),
	}
	s.huma = s.newHuma()
	s.addAccountRoutes()
	s.addTokenRoutes()
	s.addKeyRoutes()
	s.addNodeRoutes()
	s.addAliasRoutes()
	s.addEventRoutes()
	s.addRawRoutes()
	s.addSignatureRoutes()
	s.addSecretRoutes()
	s.addReplayRoutes()
	s.addSendRoutes()
	s.addShareRoutes()
	s.addStreamRoute()
	s.addExportRoute()
	s.addReferenceRoute()
	s.addOpenAPIRoute()
	s.renderReference()
	s.metrics = newMetrics(o.Registry, o.Limits, s.routes)
	return s
}
