package api

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Prometheus metrics of docs/metrics.md.
type metrics struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
}

// unknownRoute is the metric label of calls that match no route.
const unknownRoute = "none"

func newMetrics(reg prometheus.Registerer, l *Limits, routes map[string]*route) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relay_api_requests_total", Help: "API calls that were answered, by route and class of status.",
		}, []string{"route", "status"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "relay_api_request_seconds", Help: "Time to answer an API call, but for streams, waits and replays.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
	if reg == nil {
		return m
	}
	names := []string{unknownRoute, mcpRoute.id}
	for _, rt := range routes {
		names = append(names, rt.id)
	}
	for _, name := range names {
		for _, class := range []string{"2xx", "4xx", "5xx"} {
			m.requests.WithLabelValues(name, class)
		}
	}
	reg.MustRegister(m.requests, m.duration)
	for _, f := range l.refusals() {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "relay_api_rate_limited_total", Help: "Calls of API and pages answered by rate-limited, by the kind of limit.",
			ConstLabels: prometheus.Labels{"kind": f.name},
		}, func() float64 { return float64(f.count.Load()) }))
	}
	open := func(name, help string, p *concurrencyLimiter) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(p.open()) }))
	}
	open("relay_api_streams", "Live streams of the API that are open.", l.streams)
	open("relay_api_waits", "Calls that wait for an event.", l.waits)
	return m
}

// record counts a call that ended; status 0 means that the client disconnected before it got an answer.
func (m *metrics) record(c *requestInfo, status int, took time.Duration) {
	if status == 0 {
		return
	}
	name := unknownRoute
	if c.route != nil {
		name = c.route.id
	}
	m.requests.WithLabelValues(name, strconv.Itoa(status/100)+"xx").Inc()
	if !c.waited && name != "stream" {
		m.duration.Observe(took.Seconds())
	}
}
