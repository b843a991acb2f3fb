package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"relay"
	"relay/delivery"
	"relay/server"
)

// ready says why new events cannot be taken: the store cannot keep them, or no
// tunnel can come in yet.
func (a *app) ready(ctx context.Context) (degraded, reasons []string) {
	spooling, err := a.store.Health(ctx)
	if err != nil {
		reasons = append(reasons, err.Error())
	}
	if spooling {
		degraded = append(degraded, "store")
	}
	// Asked last: a standby is one only after the store was asked, or not yet.
	if err == nil && !a.begun.Load() {
		reasons = append(reasons, "not serving yet")
	}
	return degraded, reasons
}

// newFigures is the registry of every room, with what this program is.
func newFigures() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "relay_build_info", Help: "Always 1; the label tells which build this is.",
		ConstLabels: prometheus.Labels{"version": buildVersion()},
	}, func() float64 { return 1 }))
	return reg
}

// stats are the figures of the admin listener.
func (a *app) stats() server.Stats {
	d, s := a.delivery.Stats(), a.store.Stats()
	return server.Stats{
		Tunnels: d.Tunnels, Channels: d.Channels, Queued: d.Queued,
		SpoolBytes: s.SpoolBytes, Committed: s.Committed, Version: buildVersion(),
		HTTP: a.server.Stats(), SSH: a.gate.Stats(), Limits: a.limits.Stats(),
	}
}

// door stands before captures and the base site while this process is not the one
// that serves the store: a request of a provider must not be told that an alias
// does not exist only because this relay is still waiting.
type door struct {
	capture *delivery.Delivery
	base    http.Handler
	serving atomic.Bool
}

// behind says what the door leads to; before anything is served.
func (d *door) behind(capture *delivery.Delivery, base http.Handler) {
	d.capture, d.base = capture, base
}

func (d *door) open() { d.serving.Store(true) }

const standbyDetail = "this relay is not serving yet; send the request again"

func (d *door) waiting() *relay.Error {
	e := relay.Errorf(relay.CodeStoreUnavailable, standbyDetail)
	e.RetryAfter = 2 * time.Second
	return e
}

// Alias looks a label up; while the door is shut, every label is let in, to be
// answered by Capture.
func (d *door) Alias(label string) (*relay.Alias, bool) {
	if d.serving.Load() {
		return d.capture.Alias(label)
	}
	return &relay.Alias{Name: label}, true
}

// Capture runs one request.
func (d *door) Capture(ctx context.Context, in *relay.Inbound) relay.Outcome {
	if d.serving.Load() && in.Alias.ID != 0 {
		return d.capture.Capture(ctx, in)
	}
	return relay.Outcome{Answer: &relay.Answer{Error: d.waiting()}}
}

// Reject keeps a refused request.
func (d *door) Reject(in *relay.Inbound, why *relay.Error) {
	if d.serving.Load() && in.Alias.ID != 0 {
		d.capture.Reject(in, why)
	}
}

// ServeHTTP is the base site.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.serving.Load() {
		d.base.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Retry-After", "2")
	http.Error(w, standbyDetail, http.StatusServiceUnavailable)
}
