package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"relay"
	"relay/delivery"
	"relay/server"
)

// ready returns what is degraded and why new events cannot be accepted: the store cannot
// keep them, or tunnels are not served yet.
func (a *app) ready(ctx context.Context) (degraded, reasons []string) {
	spooling, err := a.store.Health(ctx)
	if err != nil {
		reasons = append(reasons, err.Error())
	}
	if spooling {
		degraded = append(degraded, "store")
	}
	if a.store.NewerSchema() > 0 {
		degraded = append(degraded, "schema")
	}
	// Checked after the store, because a standby may have started to serve meanwhile.
	switch {
	case err != nil:
	case !a.started.Load():
		reasons = append(reasons, "not serving yet")
	case !a.connected.Load() && time.Since(a.startedAt) < connectTime && !a.sshServer.ReachesAll():
		reasons = append(reasons, "connecting to the other nodes")
	default:
		a.connected.Store(true)
	}
	return degraded, reasons
}

// connectTime is how long a new node that does not reach the others yet is not ready: it
// would queue the requests for their tunnels.
const connectTime = 5 * time.Second

// stats returns the counts of /debug/stats.
func (a *app) stats() server.Stats {
	d, s := a.delivery.Stats(), a.store.Stats()
	peers, _ := a.sshServer.Reached()
	out, in := a.sshServer.Forwarded()
	return server.Stats{
		Peers: peers, ForwardedOut: out, ForwardedIn: in,
		Tunnels: d.Tunnels, Channels: d.Channels, Queued: d.Queued,
		SpoolBytes: s.SpoolBytes, Committed: s.Committed, Version: relay.ThisBuild().Version, Node: a.store.NodeName(),
		HTTP: a.server.Stats(), SSH: a.sshServer.Stats(), Limits: a.limits.Stats(),
	}
}

// standbyHandler answers 503 store-unavailable for aliases and the base site until serving
// is set: a caller must not hear that an alias does not exist only
// because this relayd is still a standby.
type standbyHandler struct {
	capture *delivery.Delivery
	base    http.Handler
	serving atomic.Bool
}

const standbyDetail = "this relay is not serving yet; send the request again"

// Alias looks up a label. Before serving is set it accepts every label, so that Capture
// answers.
func (d *standbyHandler) Alias(label string) (*relay.Alias, bool) {
	if d.serving.Load() {
		return d.capture.Alias(label)
	}
	return &relay.Alias{Name: label}, true
}

// Capture runs one request.
func (d *standbyHandler) Capture(ctx context.Context, in *relay.Inbound) relay.Outcome {
	if d.serving.Load() && in.Alias.ID != 0 {
		return d.capture.Capture(ctx, in)
	}
	notServing := relay.Errorf(relay.CodeStoreUnavailable, standbyDetail)
	notServing.RetryAfter = 2 * time.Second
	return relay.Outcome{Answer: &relay.Answer{Error: notServing}}
}

// Reject keeps a refused request.
func (d *standbyHandler) Reject(in *relay.Inbound, why *relay.Error) {
	if d.serving.Load() && in.Alias.ID != 0 {
		d.capture.Reject(in, why)
	}
}

// ServeHTTP is the base site.
func (d *standbyHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.serving.Load() {
		d.base.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Retry-After", "2")
	http.Error(w, standbyDetail, http.StatusServiceUnavailable)
}
