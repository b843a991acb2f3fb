package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"relay/api"
)

// TestMetrics: every value of a label exists from the start. Calls are counted by route; the names in their
// paths are no labels.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	h := newFixture(t, func(o *api.Options) { o.Registry = reg })
	h.get(h.asAlice, "/api/v1/me").want(200)
	h.get("", "/api/v1/me").want(401)
	h.get("", "/api/v1/shared/s3cret").want(404)
	h.get("", "/api/v1/nope/s3cret").want(404)
	gone, leave := context.WithCancel(t.Context())
	leave() // the client leaves before the answer; the call must not be counted, because relayd has not failed
	h.do(h.request("GET", h.asAlice, "/api/v1/events", "").WithContext(gone)).code(503, "stopping")
	families, err := reg.Gather()
	must(t, err)
	seen := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			seen[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"relay_api_requests_total get-me 2xx": 1, "relay_api_requests_total get-me 4xx": 1, "relay_api_requests_total get-me 5xx": 0,
		"relay_api_requests_total get-shared 4xx": 1, "relay_api_requests_total none 4xx": 1, "relay_api_requests_total list-events 2xx": 0,
		"relay_api_requests_total list-events 5xx": 0,
		"relay_api_rate_limited_total replays":     0, "relay_api_rate_limited_total source": 0, "relay_api_rate_limited_total waits": 0,
		"relay_api_streams": 0, "relay_api_waits": 0, "relay_api_request_seconds": 4,
	} {
		if got, ok := seen[name]; !ok || got != want {
			t.Errorf("%s: %v, %t; want %v", name, got, ok, want)
		}
	}
	for name := range seen {
		if strings.Contains(name, "s3cret") {
			t.Errorf("a label shows a secret: %s", name)
		}
	}
}
